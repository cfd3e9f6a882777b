#include "launch/meeting_factory.h"

#include <unistd.h>

#include <cstdlib>

#include "base/random.h"
#include "launch/endpoint.h"
#include "launch/local_meeting.h"
#include "launch/node_decisions.h"
#include "launch/store_meeting.h"

namespace lockstep::launch {
namespace {

Result<std::unique_ptr<NodeMeeting>> meet_alone(const Job& job) {
  const RunOptions& options = job.options;
  LocalMeetingOptions local{.self = {.id = random_hex(8),
                                     .host = job.host,
                                     .pid = ::getpid(),
                                     .nproc = options.nproc,
                                     .address = {},
                                     .node_rank = options.node_rank},
                            .host = "127.0.0.1",
                            .port = 0,
                            .serve_store = job.serve_store,
                            .secret = job.secret};
  if (!options.endpoints.empty()) {
    local.host = options.endpoints.front().host;
    local.port = options.endpoints.front().port;
  }
  return LocalMeeting::open(std::move(local));
}

Result<std::unique_ptr<NodeMeeting>> meet_others(const Job& job) {
  const RunOptions& options = job.options;
  StoreMeetingOptions meeting;
  meeting.endpoints = options.endpoints;
  meeting.local_address = options.local_addr;
  meeting.job = {.run_id = job.run_id,
                 .min_nodes = options.min_nodes,
                 .max_nodes = options.max_nodes,
                 .elastic = options.elastic,
                 .max_restarts = options.max_restarts};
  meeting.nproc = options.nproc;
  meeting.node_rank = options.node_rank;
  meeting.secret = job.secret;
  meeting.last_call = options.last_call;
  auto opened = StoreMeeting::open(std::move(meeting));
  if (!opened.ok()) return opened.status();
  return std::unique_ptr<NodeMeeting>(*std::move(opened));
}

}  // namespace

Result<std::unique_ptr<NodeMeeting>> make_meeting(const Job& job) {
  return job.options.max_nodes > 1 ? meet_others(job) : meet_alone(job);
}

std::optional<std::string> warn_of_meeting(const RunOptions& options, const Environment& environment) {
  const bool elsewhere = !options.endpoints.empty() && !is_on_this_host(options.endpoints.front());
  const int slurm_nodes = std::atoi(environment("SLURM_JOB_NUM_NODES").value_or("1").c_str());
  const std::string endpoint = options.endpoints.empty() ? "" : to_string(options.endpoints.front());
  return warn_of_lonely_node(options.max_nodes, elsewhere, endpoint, slurm_nodes);
}

}  // namespace lockstep::launch
