#include "launch/meeting_factory.h"

#include <unistd.h>

#include <cstdlib>

#include "base/random.h"
#include "launch/endpoint.h"
#include "launch/local_meeting.h"
#include "launch/store_meeting.h"

namespace lockstep::launch {
namespace {

Result<std::unique_ptr<NodeMeeting>> open_store_meeting(const Job& job, const NodeRecord& self) {
  const RunOptions& options = job.options;
  StoreMeetingOptions meeting;
  meeting.endpoints.push_back({options.endpoint_host, options.endpoint_port});
  meeting.endpoints.insert(meeting.endpoints.end(), options.other_endpoints.begin(), options.other_endpoints.end());
  meeting.local_address = options.local_addr;
  meeting.job = {.run_id = job.run_id,
                 .min_nodes = options.min_nodes,
                 .max_nodes = options.max_nodes,
                 .elastic = options.elastic,
                 .max_restarts = options.max_restarts,
                 .serve_store = job.serve_store};
  meeting.self = self;
  meeting.secret = job.secret;
  meeting.last_call = options.last_call;
  meeting.silence = options.node_timeout;
  auto opened = StoreMeeting::open(std::move(meeting));
  if (!opened.ok()) return opened.status();
  return std::unique_ptr<NodeMeeting>(*std::move(opened));
}

// How many hosts Slurm gave to what this is a part of; 0 outside of Slurm.
int nodes_of_slurm(const Environment& environment) {
  const auto nodes = environment("SLURM_STEP_NUM_NODES");
  return std::atoi(nodes.value_or(environment("SLURM_NNODES").value_or("0")).c_str());
}

}  // namespace

Result<std::unique_ptr<NodeMeeting>> make_meeting(Job& job) {
  const RunOptions& options = job.options;
  const NodeRecord self{.id = random_hex(8),
                        .host = job.host,
                        .pid = ::getpid(),
                        .nproc = options.nproc,
                        .address = {},
                        .node_rank = options.node_rank};
  if (options.max_nodes > 1) return open_store_meeting(job, self);
  LocalMeetingOptions local{.self = self,
                            .host = "127.0.0.1",
                            .port = options.endpoint_port,
                            .serve_store = job.serve_store,
                            .secret = job.secret};
  const HostPort endpoint{options.endpoint_host, options.endpoint_port};
  const bool is_elsewhere = !endpoint.host.empty() && !is_on_this_host(endpoint);
  const auto warning =
      warn_of_lonely_node(options.max_nodes, is_elsewhere, to_string(endpoint), nodes_of_slurm(process_environment()));
  if (warning) job.console.alarm(*warning);
  if (is_elsewhere) {
    local.port = 0;
  } else if (!endpoint.host.empty()) {
    local.host = endpoint.host;
  }
  return LocalMeeting::open(std::move(local));
}

}  // namespace lockstep::launch
