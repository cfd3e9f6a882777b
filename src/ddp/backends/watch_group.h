// The watch group: a communicator beside another engine, and the store of its rendezvous. It performs the
// rendezvous (env://, tcp://, file://) and the handshake, provides hosts and processes for messages, detects
// lost peers, and ends the group when a peer is lost or a rank calls abort().
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

// Connects to the other ranks as `options` describe. Throws Error.
WatchGroup make_watch_group(const ProcessGroupOptions& options);

}  // namespace lockstep::detail
