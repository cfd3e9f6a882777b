#include "launch/meeting_factory.h"

#include <unistd.h>

#include "base/random.h"
#include "launch/local_meeting.h"

namespace lockstep::launch {

Result<std::unique_ptr<NodeMeeting>> make_meeting(const Job& job) {
  const RunOptions& options = job.options;
  const NodeRecord self{.id = random_hex(8),
                        .host = job.host,
                        .pid = ::getpid(),
                        .nproc = options.nproc,
                        .address = {},
                        .node_rank = options.node_rank};
  if (options.max_nodes > 1)
    return Status(StatusCode::invalid_argument, "--nnodes is more than 1, and this build cannot join several nodes");
  LocalMeetingOptions local{.self = self,
                            .host = "127.0.0.1",
                            .port = options.endpoint_port,
                            .serve_store = job.serve_store,
                            .secret = job.secret};
  if (!options.endpoint_host.empty()) local.host = options.endpoint_host;
  return LocalMeeting::open(std::move(local));
}

}  // namespace lockstep::launch
