#include "launch/meeting/meeting_factory.h"

#include <cstdlib>

#include "base/process_state.h"
#include "base/random.h"
#include "launch/meeting/local_meeting.h"
#include "launch/meeting/store_meeting.h"
#include "launch/options/endpoint.h"

namespace lockstep::launch {
namespace {

Result<std::unique_ptr<NodeMeeting>> open_store_meeting(const Job& job, const NodeRecord& self) {
  const RunOptions& options = job.options;
  StoreMeetingOptions meeting;
  meeting.endpoints = options.endpoints;
  meeting.local_address = options.local_addr;
  meeting.job = {.run_id = job.run_id,
                 .min_nodes = options.min_nodes,
                 .max_nodes = options.max_nodes,
                 .elastic = options.elastic,
                 .max_restarts = options.max_restarts,
                 .serve_store = job.serve_store};
  meeting.self = self;
  meeting.roster = job.node_roster_file();
  meeting.open_attester = [&job](const std::string& host) { return job.guard.open_attester(host); };
  meeting.secret = job.secret;
  meeting.witness = options.witness;
  meeting.last_call_timeout = options.last_call_timeout;
  meeting.silent_timeout = options.node_timeout;
  auto opened = StoreMeeting::open(std::move(meeting));
  if (!opened.ok()) return opened.status();
  return std::unique_ptr<NodeMeeting>(*std::move(opened));
}

// How many hosts Slurm allocated to this step or job; 0 outside of Slurm.
int nodes_of_slurm(const Environment& environment) {
  const auto nodes = environment("SLURM_STEP_NUM_NODES");
  return std::atoi(nodes.value_or(environment("SLURM_NNODES").value_or("0")).c_str());
}

Result<std::unique_ptr<NodeMeeting>> open_local_meeting(Job& job, const NodeRecord& self) {
  const RunOptions& options = job.options;
  const HostPort endpoint = options.endpoints.empty() ? HostPort{"127.0.0.1", 0} : options.endpoints.front();
  const bool is_elsewhere = !options.endpoints.empty() && !is_on_this_host(endpoint);
  const auto warning =
      warn_of_single_node(options.max_nodes, is_elsewhere, to_string(endpoint), nodes_of_slurm(process_environment()));
  if (warning) job.console.alarm(*warning);
  return LocalMeeting::open({.self = self,
                             .host = is_elsewhere ? "127.0.0.1" : endpoint.host,
                             .port = is_elsewhere ? std::uint16_t{0} : endpoint.port,
                             .serve_store = job.serve_store,
                             .secret = job.secret});
}

}  // namespace

Result<std::unique_ptr<NodeMeeting>> make_meeting(Job& job) {
  const ProcessIdentity process = this_process();
  const NodeRecord self{.id = random_hex(8),
                        .host = job.host,
                        .pid = process.pid,
                        .nproc = job.options.nproc,
                        .address = {},
                        .node_rank = job.options.node_rank,
                        .rank_port = 0,
                        .started = process.started};
  return job.options.max_nodes > 1 ? open_store_meeting(job, self) : open_local_meeting(job, self);
}

}  // namespace lockstep::launch
