#include "launch/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>

#include "base/json_log.h"
#include "launch/elastic_supervisor.h"
#include "launch/job.h"
#include "launch/meeting/meeting_factory.h"
#include "launch/restart_policy.h"
#include "launch/round_supervisor.h"

namespace lockstep::launch {
namespace {

// How long the launcher waits at its end for slow or stuck readers of its output.
constexpr std::chrono::seconds kLastOutput{5};

// Descriptors 0 to 2 must be open, or a pipe of the launcher would become a rank's stdin.
void open_standard_streams() {
  int fd = 0;
  do {
    fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  } while (fd >= 0 && fd <= 2);
  if (fd > 2) ::close(fd);
}

class Agent {
 public:
  Agent(Job& job, NodeMeeting& meeting, const StopSignals& signals) : job_(job), meeting_(meeting), signals_(signals) {}

  int run() {
    while (!exit_code_) {
      const auto round = meeting_.next_round(Deadline::after(job_.options.start_timeout), &StopSignals::requested);
      if (!round.ok()) return no_round(round.status());
      if (job_.dashboard) {
        job_.dashboard->job().round_began(round->number, round->node_rank, static_cast<int>(round->nodes.size()),
                                          round->world_size);
      }
      const auto supervise = job_.options.elastic ? supervise_elastic : supervise_round;
      const RoundResult result = supervise(job_, meeting_, *round, signals_);
      conclude(*round, result);
    }
    return *exit_code_;
  }

 private:
  int no_round(const Status& status) {
    if (StopSignals::requested()) return interrupted();
    job_.console.alarm(status.message());
    // After a failure the others may end the job; then the exit code is that of the failure.
    return last_failure_code_.value_or(kRendezvousCode);
  }

  void conclude(const Round& round, const RoundResult& result) {
    switch (result.kind) {
      case RoundResult::Kind::finished: exit_code_ = 0; return;
      case RoundResult::Kind::interrupted: exit_code_ = interrupted(); return;
      case RoundResult::Kind::not_started:
        job_.console.alarm(result.error.message());
        meeting_.end_job(fmt::format("{} could not start its ranks: {}", job_.host, result.error.message()));
        exit_code_ = result.error.code() == StatusCode::invalid_argument ? kUsageCode : 1;
        return;
      case RoundResult::Kind::node_lost: return lost_node(round, result.reason);
      case RoundResult::Kind::failed:
      case RoundResult::Kind::failed_elsewhere: return failed(round, result);
    }
  }

  void failed(const Round& round, const RoundResult& result) {
    const RankEnd& first = *first_failure(result.ends);
    job_.console.alarm(failure_report(first, result.ends, job_.logs.root()));
    last_failure_code_ = exit_code_of(first.failure);
    if (job_.options.elastic) {  // replacements were handled meanwhile; other nodes may continue
      exit_code_ = last_failure_code_;
      return;
    }
    // The node of the rank that failed decides for all.
    if (result.kind == RoundResult::Kind::failed_elsewhere) return;
    const int at_once = history_.record(first.failure.rank, first.uptime_seconds);
    const RestartDecision decision =
        decide_restart(first.failure.rank, round.restarts, job_.options.max_restarts, at_once);
    if (!decision.reason.empty()) job_.console.say(decision.reason);
    if (decision.restart) return restart_after(decision.wait, *last_failure_code_);
    meeting_.end_job(fmt::format("rank {} on {} failed with {}", first.failure.rank, first.failure.host,
                                 describe_end(first.failure.exit_code, first.failure.signal)));
    exit_code_ = last_failure_code_;
  }

  void lost_node(const Round& round, const std::string& reason) {
    job_.console.alarm(reason);
    // MIN:MAX allows this without counting a restart. The meeting decides whether enough nodes are left.
    if (job_.options.min_nodes < job_.options.max_nodes)
      return job_.console.say("all ranks restart on the remaining nodes");
    const RestartDecision decision = decide_restart_after_loss(round.restarts, job_.options.max_restarts);
    job_.console.say(decision.reason);
    if (!decision.restart) {
      meeting_.end_job(fmt::format("{}, and {}", reason, decision.reason));
      exit_code_ = kRendezvousCode;
      return;
    }
    restart_after(decision.wait, kRendezvousCode);
  }

  // Counts a restart of the job; `code` is the exit code if that fails.
  void restart_after(std::chrono::milliseconds wait, int code) {
    const auto count = meeting_.count_restart();
    if (!count.ok()) {
      job_.console.alarm(count.status().message());
      exit_code_ = code;
    } else if (!pause(wait)) {
      exit_code_ = interrupted();
    }
  }

  int interrupted() {
    const int signal = StopSignals::first();
    const std::string text = describe_end(0, signal);
    job_.console.say(fmt::format("interrupted by {}; all ranks have ended", text));
    // A node that is removed (SIGTERM) ends the job only if the others cannot continue without it.
    const bool others_continue = job_.options.elastic || job_.options.min_nodes < job_.options.max_nodes;
    if (signal == SIGINT || !others_continue) meeting_.end_job(fmt::format("interrupted by {} on {}", text, job_.host));
    return 128 + signal;
  }

  // False if a stop signal came meanwhile.
  bool pause(std::chrono::milliseconds duration) const {
    pollfd polled{signals_.fd(), POLLIN, 0};
    const Deadline deadline = Deadline::after(duration);
    while (!StopSignals::requested() && !deadline.expired()) ::poll(&polled, 1, deadline.poll_timeout_ms());
    return !StopSignals::requested();
  }

  Job& job_;
  NodeMeeting& meeting_;
  const StopSignals& signals_;
  RestartHistory history_;
  std::optional<int> last_failure_code_;
  std::optional<int> exit_code_;
};

// Before there is a console.
void report(const Status& status) {
  const std::string line = logs_as_json() ? json_log_line("lockstep run", "error", -1, 0, status.message())
                                          : "lockstep run: " + status.message();
  fmt::print(stderr, "{}\n", line);
}

dashboard::EventKind event_kind(MessageKind kind) {
  switch (kind) {
    case MessageKind::general: return dashboard::EventKind::message;
    case MessageKind::failure: return dashboard::EventKind::failure;
    case MessageKind::generation: return dashboard::EventKind::generation;
  }
  return dashboard::EventKind::message;
}

void announce_dashboard(Job& job) {
  job.console.say(fmt::format("dashboard: {}", job.dashboard->url()));
  job.console.listen([sampler = &job.dashboard->job()](MessageKind kind, std::string_view text) {
    sampler->message(event_kind(kind), text);
  });
}

std::string describe_exit(int code) {
  return code == 0 ? "All ranks have finished successfully" : fmt::format("The job has failed: exit code {}", code);
}

int usage_error(const Status& status) {
  report(status);
  return kUsageCode;
}

}  // namespace

int run_job(const RunOptions& options, const Environment& environment) {
  open_standard_streams();
  const StopSignals signals;
  auto prepared = prepare_job(options, environment);
  if (!prepared.ok()) return usage_error(prepared.status());
  Job job = *std::move(prepared);
  auto meeting = make_meeting(job);
  if (!meeting.ok()) {
    const StatusCode code = meeting.status().code();
    const bool usage = code == StatusCode::already_exists || code == StatusCode::invalid_argument ||
                       code == StatusCode::unauthenticated;
    report(meeting.status());
    return usage ? kUsageCode : kRendezvousCode;
  }
  if (job.dashboard) announce_dashboard(job);
  const int code = Agent(job, **meeting, signals).run();
  if (job.dashboard) job.dashboard->finish(code == 0, describe_exit(code));
  if (job.trace) {
    if (const Status written = job.trace->write(); !written.ok()) job.console.say(written.message());
    if (const std::string dropped = job.trace->describe_dropped(); !dropped.empty()) job.console.say(dropped);
  }
  if (job.metrics) {
    job.metrics->finish();
    if (const std::string trouble = job.metrics->take_trouble(); !trouble.empty()) job.console.say(trouble);
  }
  job.console.drain(Deadline::after(kLastOutput));
  return code;
}

}  // namespace lockstep::launch
