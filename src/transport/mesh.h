// The connections of one rank to the others of its group: what rendezvous makes and a Communicator runs on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/net/channel.h"
#include "transport/host_transport.h"
#include "transport/link_source.h"
#include "transport/topology.h"

namespace lockstep {

struct Mesh {
  std::string group_id;  // unique: no two generations share one
  Topology topology;
  std::vector<Channel> control;         // by rank; valid for control_peers(topology) only
  std::unique_ptr<HostTransport> host;  // never null, even if this is the only rank of its host
  std::shared_ptr<LinkSource> links;    // for messages and data; null if this is the only rank of the group
};

}  // namespace lockstep
