#include "launch/round_supervisor.h"

#include <fmt/format.h>

#include <csignal>
#include <set>

#include "launch/process/stop_ranks.h"

namespace lockstep::launch {
namespace {

// Ranks that fail because of the first failure get this long to report it themselves before they are stopped.
constexpr std::chrono::milliseconds kSettle{500};
// If every failed rank blames another one, the failure of that one may not have been detected yet: on this node, or on
// another node, which may take as long as the node timeout.
constexpr std::chrono::milliseconds kSettleBlame{1000};

class RoundSupervisor {
 public:
  RoundSupervisor(Job& job, NodeMeeting& meeting, const Round& round, const StopSignals& signals)
      : job_(job), meeting_(meeting), round_(round), signals_(signals), ranks_(job) {}

  RoundResult run() {
    if (start_all()) {
      while (!over()) step();
    }
    return std::move(result_);
  }

 private:
  bool start_all() {
    for (int local_rank = 0; local_rank < job_.options.nproc; ++local_rank) {
      const Status status = ranks_.start(
          round_, {.local_rank = local_rank, .attempt = round_.number, .restarts = round_.restarts, .elastic = {}});
      if (status.ok()) continue;
      result_.error = status;
      stop(RoundResult::Kind::not_started, SIGKILL);
      return false;
    }
    return true;
  }

  // Waits until a rank ends, an event arrives or an interval passes, and handles it.
  void step() {
    const Deadline next = Deadline::after(job_.options.monitor_interval);
    const Deadline until = settled_ ? next.earlier(*settled_) : alone() ? Deadline::after(std::chrono::hours(1)) : next;
    for (auto& end : ranks_.wait(until, signals_)) add(std::move(end));
    if (StopSignals::requested()) return stop(RoundResult::Kind::interrupted, StopSignals::first());
    if (!alone() && !stopped_) handle(meeting_.poll());
    if (stopped_) return;
    const RankEnd* const first = first_failure(result_.ends);
    const bool all_known = alone() && ranks_.running() == 0;
    if (first != nullptr && (all_known || settled_->expired())) {
      const Status reported = meeting_.report_failure(first->failure);
      if (!reported.ok()) job_.console.say("the other nodes could not be notified: " + reported.message());
      stop(RoundResult::Kind::failed, SIGTERM);
    } else if (first == nullptr && ranks_.running() == 0 && !finished_) {
      finished_ = true;
      const Status reported = meeting_.report_finished();
      if (!reported.ok()) job_.console.say("the other nodes could not be notified: " + reported.message());
    }
  }

  void add(RankEnd end) {
    if (!end.success()) {
      const auto blame = alone() ? kSettleBlame : kSettleBlame + job_.options.node_timeout;
      const Deadline settled = Deadline::after(end.consequence ? blame : kSettle);
      settled_ = settled_ ? settled_->earlier(settled) : settled;
    }
    result_.ends.push_back(std::move(end));
  }

  void handle(const MeetingEvent& event) {
    switch (event.kind) {
      case MeetingEvent::Kind::none: return;
      case MeetingEvent::Kind::rank_failed:
        result_.ends.push_back(remote_end(event.failure));
        return stop(RoundResult::Kind::failed_elsewhere, SIGTERM);
      case MeetingEvent::Kind::node_lost:
        result_.reason = fmt::format("node {} (pid {}) was lost", event.node.host, event.node.pid);
        return stop(RoundResult::Kind::node_lost, SIGTERM);
      case MeetingEvent::Kind::node_waiting:
        job_.console.say(fmt::format("node {} arrived late; it joins at the next restart", event.node.host));
        return;
      case MeetingEvent::Kind::node_finished: finished_nodes_.insert(event.node.id); return;
    }
  }

  void stop(RoundResult::Kind kind, int signal) {
    result_.kind = kind;
    stopped_ = true;
    stop_ranks(ranks_, signal, job_.options.shutdown_timeout, job_.console, signals_, result_.ends);
  }

  bool over() const { return stopped_ || (finished_ && finished_nodes_.size() + 1 >= round_.nodes.size()); }
  bool alone() const { return round_.nodes.size() == 1; }

  Job& job_;
  NodeMeeting& meeting_;
  const Round& round_;
  const StopSignals& signals_;
  RankSet ranks_;
  RoundResult result_;
  std::optional<Deadline> settled_;  // set by the first failure: when to act on it
  bool stopped_ = false;
  bool finished_ = false;                 // all ranks of this node succeeded
  std::set<std::string> finished_nodes_;  // other nodes
};

}  // namespace

RoundResult supervise_round(Job& job, NodeMeeting& meeting, const Round& round, const StopSignals& signals) {
  return RoundSupervisor(job, meeting, round, signals).run();
}

}  // namespace lockstep::launch
