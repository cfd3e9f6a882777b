// Ranks as processes of one host: each creates its shared area in a memfd and passes it to the others over
// the Unix sockets that connect them.
#pragma once

#include <memory>
#include <span>

#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"
#include "transport/host_transport.h"
#include "transport/topology.h"

namespace lockstep {

// All ranks of this host call this at the same time. `control_fds`: a connected, authenticated Unix
// socket to each local rank, by local index (-1 for myself), on which nothing else is in flight;
// they are only used, not kept. An error names the rank.
Result<std::unique_ptr<HostTransport>> connect_shm_host(const Topology& topology, std::span<const int> control_fds,
                                                        Deadline deadline);

}  // namespace lockstep
