// From an init method to a connected mesh.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/net/auth.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"
#include "lockstep/rendezvous/init_options.h"
#include "lockstep/store/store.h"
#include "transport/mesh.h"

namespace lockstep {

// Where the ranks meet and which one this is.
struct MeetingPoint {
  std::shared_ptr<Store> store;  // keeps the server alive too, on the rank that serves it
  int rank = 0;
  int world_size = 1;
  // The store's host, if it has one: links to other hosts use the interface that reaches it.
  std::string master_host = {};
};

// Reads init_method (and the environment), starts or reaches the store.
Result<MeetingPoint> find_meeting_point(const InitOptions& options, const Secret& secret, Deadline deadline);

// All `world_size` ranks call this with the same `scope` over the same store. Agrees on a fresh
// generation (keys of an earlier run are never mistaken for this one's), finds by probing which
// ranks share a host, and connects every pair. Errors name missing ranks, ranks that are claimed twice, and ranks that
// died meanwhile.
struct MeshOptions {
  std::string scope = {};  // e.g. "world" or "world/sub/3"
  // Interface name or address for links to other hosts; empty: LOCKSTEP_INTERFACE, else automatic.
  std::string network_interface = {};
  int data_streams = 1;  // TCP connections for payload between two ranks of different hosts
  // Ranks with different ids are treated as ranks of different hosts, even if they are not; empty:
  // LOCKSTEP_HOST_ID. For tests of TCP on one machine.
  std::string host_id = {};
  // Called if forming fails when this rank is connected already. Other ranks may have returned by then: this is the
  // chance to tell them why this one will not take part.
  std::function<void(Mesh& mesh, const Status& why)> abandon = {};
};
Result<Mesh> connect_mesh(const MeetingPoint& where, const Secret& secret, const MeshOptions& options,
                          Deadline deadline);

}  // namespace lockstep
