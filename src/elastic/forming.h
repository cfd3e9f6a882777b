// Turns a decided generation into a connected group: all members report that they have joined, then all connect. If a
// member is lost meanwhile, the others stop waiting for it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"
#include "lockstep/communicator/communicator.h"
#include "membership/member_store.h"
#include "membership/records.h"

namespace lockstep::elastic {

using membership::Answer;
using membership::Generation;
using membership::MemberStore;

struct Forming {
  Answer answer;                 // with the generation
  std::string self;              // id of this process
  std::shared_ptr<Store> store;  // the leader's member store
  CommunicatorOptions group = {};
  // Only on the leader: its member store and the members that registered there. Null on the others.
  MemberStore* member_store = nullptr;
  std::vector<MemberStore::Registrant> registrants = {};
};

// Blocks until the group is established, a member is lost (peer_lost, which all members get at about the same time), or
// the deadline passes.
Result<std::shared_ptr<Communicator>> form_group(const Forming& forming, Deadline deadline);

}  // namespace lockstep::elastic
