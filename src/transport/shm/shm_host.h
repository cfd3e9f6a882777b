// Ranks as processes of one host: its first rank creates the arena in a memfd and passes it to the others over the Unix
// sockets that connect them to it.
#pragma once

#include <memory>
#include <span>

#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"
#include "transport/host_transport.h"
#include "transport/topology.h"

namespace lockstep {

// All ranks of this host call this at the same time, and return when all are there. `control_fds`, by local index: the
// first rank has a connected, authenticated Unix socket to each of the others, and each of them one to it; the rest is
// -1. Nothing else is in flight on them; they are only used, not kept. An error names the rank.
Result<std::unique_ptr<HostTransport>> connect_shm_host(const Topology& topology, std::span<const int> control_fds,
                                                        Deadline deadline);

}  // namespace lockstep
