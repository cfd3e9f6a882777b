// The connections of one rank to all the others of its group: what rendezvous makes and a
// Communicator runs on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "transport/host_transport.h"
#include "transport/topology.h"

namespace lockstep {

// Authenticated, connected, non-blocking stream sockets to one peer: Unix sockets to ranks of this
// host, TCP to others. Both ends hold the same set.
struct PeerLinks {
  UniqueFd control;            // heartbeats, abort, goodbye, registered regions (owner: the control plane)
  UniqueFd messages;           // send/recv with tags (owner: the group's message lane)
  std::vector<UniqueFd> data;  // payload of collectives; empty if the whole group is on one host
};

struct Mesh {
  std::string group_id;  // unique: no two generations share one
  Topology topology;
  std::vector<PeerLinks> links;         // by rank; the own entry is empty
  std::unique_ptr<HostTransport> host;  // never null, even if this is the only rank of its host
};

}  // namespace lockstep
