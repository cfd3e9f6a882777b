// A group of Lockstep's own engine, and the store in which its ranks have met: what every other engine
// stands beside. It meets (env://, tcp://, file://), proves the secret, knows hosts and processes, watches
// the peers, and ends the whole when one is lost or somebody aborts.
#pragma once

#include <memory>
#include <string>

#include "lockstep/communicator/communicator.h"
#include "lockstep/ddp/init.h"
#include "lockstep/store/store.h"

namespace lockstep::detail {

struct WatchGroup {
  std::shared_ptr<Communicator> group;
  std::shared_ptr<Store> store;
  std::string master_host;  // other hosts are reached through the interface that reaches it; may be empty

  explicit operator bool() const { return group != nullptr; }
};

// Meets the other ranks as `options` say. Throws Error.
WatchGroup meet(const ProcessGroupOptions& options);

}  // namespace lockstep::detail
