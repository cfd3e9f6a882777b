// From a decided generation to a connected group: everybody says that he has come, then all connect; and if one of
// them is lost meanwhile, nobody waits for him.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "elastic/rank_store.h"
#include "elastic/records.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"
#include "lockstep/communicator/communicator.h"

namespace lockstep::elastic {

struct Forming {
  Answer answer;                 // with the generation
  std::string self;              // id of this process
  std::shared_ptr<Store> store;  // the leader's door
  CommunicatorOptions group = {};
  // The leader's: its door and those members who registered there. Null for the others.
  RankStore* door = nullptr;
  std::vector<RankStore::Visitor> visitors = {};
};

// Blocks until the group stands, somebody is lost (peer_lost, all members get it at about the same time), or the
// deadline passes.
Result<std::shared_ptr<Communicator>> form_group(const Forming& forming, Deadline deadline);

}  // namespace lockstep::elastic
