#include "launch/elastic_supervisor.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <memory>
#include <thread>

#include "base/failpoint.h"
#include "launch/meeting/roster_file.h"
#include "launch/process/stop_ranks.h"
#include "launch/report/generation.h"
#include "launch/restart_policy.h"
#include "membership/attester.h"
#include "membership/roster.h"

namespace lockstep::launch {
namespace {

// How long the launcher stays after its ranks, so that the others can ask it how they ended.
constexpr std::chrono::seconds kLastAttestation{3};
constexpr std::chrono::milliseconds kExchangePause{50};
constexpr std::chrono::seconds kAttesterStart{10};

class ElasticSupervisor {
 public:
  ElasticSupervisor(Job& job, NodeMeeting& meeting, const Round& round, const StopSignals& signals)
      : job_(job),
        meeting_(meeting),
        round_(round),
        signals_(signals),
        ranks_(job),
        roster_(job.roster_file()),
        restarts_(round.restarts) {}

  RoundResult run() {
    if (open_attester() && start_all()) {
      while (ranks_.running() > 0 || !pending_.empty()) step();
      if (result_.kind == RoundResult::Kind::finished) conclude();
    }
    if (result_.kind != RoundResult::Kind::finished) wait_until_left_behind();
    return std::move(result_);
  }

 private:
  Status start(int local_rank, bool newcomer) {
    const ElasticPlace place{.min_ranks = job_.options.min_ranks,
                             .max_ranks = job_.options.nproc * job_.options.max_nodes,
                             .roster_file = job_.roster_file(),
                             .attester = attester_ ? attester_->address() : "",
                             .witness = job_.options.witness,
                             .newcomer = newcomer};
    return ranks_.start(
        round_,
        {.local_rank = local_rank, .attempt = history_.deaths(local_rank), .restarts = restarts_, .elastic = place});
  }

  // Ranks of one node find out themselves which of them have ended; those of other nodes have to ask.
  bool open_attester() {
    if (job_.options.max_nodes == 1) return true;
    const std::string& address = round_.nodes.at(static_cast<std::size_t>(round_.node_rank)).attester;
    auto attester = membership::Attester::connect(address, job_.secret, Deadline::after(kAttesterStart));
    result_.error = attester.status();
    if (attester.ok()) attester_ = *std::move(attester);
    if (!attester_) result_.kind = RoundResult::Kind::not_started;
    return attester_ != nullptr;
  }

  bool start_all() {
    const bool joins = round_.number > 0 && meeting_.newest_roster().has_value();
    exchange_rosters();  // newcomers read it when they start
    for (int local_rank = 0; local_rank < job_.options.nproc; ++local_rank) {
      result_.error = start(local_rank, joins);
      if (result_.error.ok()) continue;
      stop(RoundResult::Kind::not_started, SIGKILL);
      return false;
    }
    return true;
  }

  void step() {
    Deadline until = Deadline::after(job_.options.monitor_interval);
    for (const auto& [local_rank, when] : pending_) until = until.earlier(when);
    for (auto& end : ranks_.wait(until, signals_)) handle(std::move(end));
    if (StopSignals::requested()) return stop(RoundResult::Kind::interrupted, StopSignals::first());
    exchange_rosters();
    handle(meeting_.poll());
    start_due();
  }

  void handle(RankEnd end) {
    const int local_rank = end.failure.local_rank;
    failpoint("launcher.rank_ended");
    attest(end);
    failpoint("launcher.attested");
    if (end.success()) {
      finishing_ = true;  // the work is done: a rank that dies now is not replaced
      pending_.clear();
    } else {
      job_.console.alarm(loss_report(end));
      if (!finishing_) replace(local_rank, end);
    }
    result_.ends.push_back(std::move(end));
  }

  void attest(const RankEnd& end) {
    if (!attester_) return;
    const Status status = attester_->attest(end.process, job_.roster_file());
    if (!status.ok()) {
      job_.console.say(
          fmt::format("the end of {} could not be attested to the other nodes, which may take it for "
                      "unreachable: {}",
                      name_of(end.failure), status.message()));
    }
  }

  // The other nodes can only continue at once if they learn from this one that its ranks have ended.
  void wait_until_left_behind() {
    // SIGINT ends the job on all nodes.
    if (!attester_ || StopSignals::first() == SIGINT) return;
    for (const Deadline deadline = Deadline::after(kLastAttestation); !deadline.expired();) {
      exchange_rosters();
      const auto roster = membership::read_roster(job_.roster_file());
      if (!roster.ok() || roster->finished) return;
      const auto is_mine = [&](const membership::Member& member) { return member.attester == attester_->address(); };
      if (std::none_of(roster->generation.members.begin(), roster->generation.members.end(), is_mine)) return;
      std::this_thread::sleep_for(kExchangePause);
    }
  }

  void replace(int local_rank, const RankEnd& end) {
    const int at_once = history_.record(local_rank, end.uptime_seconds);
    const std::string name = name_of(end.failure);
    const int deaths = history_.deaths(local_rank);
    RestartDecision decision = decide_replacement(name, restarts_, job_.options.max_restarts, deaths, at_once);
    if (decision.restart) {
      const auto count = meeting_.count_restart();
      if (!count.ok()) {
        job_.console.say(fmt::format("{} is not replaced: {}", name, count.status().message()));
        return;
      }
      // Other nodes count too, so this node's number may have been out of date.
      decision = decide_replacement(name, *count - 1, job_.options.max_restarts, deaths, at_once);
      restarts_ = *count;
    }
    job_.console.say(decision.reason);
    if (decision.restart) pending_.emplace(local_rank, Deadline::after(decision.wait));
  }

  void start_due() {
    for (auto next = pending_.begin(); next != pending_.end();) {
      if (!next->second.expired()) {
        ++next;
        continue;
      }
      const Status status = start(next->first, true);
      if (!status.ok()) job_.console.alarm(status.message() + "; the others continue");
      next = pending_.erase(next);
    }
  }

  void exchange_rosters() {
    if (const auto mine = roster_.take_newer()) {
      if (const auto roster = membership::parse_roster(*mine); roster.ok() && !roster->finished) {
        job_.console.say(describe_generation(roster->generation, ranks_.processes()), MessageKind::generation);
      }
      const Status status = meeting_.publish_roster(*mine);
      if (!status.ok())
        job_.console.say("the newest roster could not be published to the other nodes: " + status.message());
    }
    if (round_.nodes.size() == 1 && job_.options.max_nodes == 1) return;
    if (const auto theirs = meeting_.newest_roster()) {
      const Status status = roster_.offer(*theirs);
      if (!status.ok() && roster_works_) job_.console.say(status.message());
      roster_works_ = status.ok();
    }
  }

  // The ranks handle events on other nodes; the launcher only reports them.
  void handle(const MeetingEvent& event) {
    const NodeRecord& node = event.node;
    switch (event.kind) {
      case MeetingEvent::Kind::none: return;
      case MeetingEvent::Kind::rank_failed:
        job_.console.say(fmt::format("on another node: {}", describe_rank_end(remote_end(event.failure))));
        return;
      case MeetingEvent::Kind::node_lost:
        job_.console.alarm(fmt::format("node {} (pid {}) was lost; the others continue", node.host, node.pid));
        return;
      case MeetingEvent::Kind::node_waiting:
        job_.console.say(fmt::format("node {} (pid {}) joins", node.host, node.pid));
        return;
      case MeetingEvent::Kind::node_finished:
        job_.console.say(fmt::format("node {} (pid {}) has finished", node.host, node.pid));
        return;
    }
  }

  void stop(RoundResult::Kind kind, int signal) {
    result_.kind = kind;
    pending_.clear();
    stop_ranks(ranks_, signal, job_.options.shutdown_timeout, job_.console, signals_, result_.ends);
    for (const RankEnd& end : result_.ends) attest(end);
  }

  void conclude() {
    result_.ends = final_failures(result_.ends);
    if (!result_.ends.empty()) {
      result_.kind = RoundResult::Kind::failed;
      return;
    }
    const Status reported = meeting_.report_finished();
    if (!reported.ok()) job_.console.say("the other nodes could not be notified: " + reported.message());
  }

  Job& job_;
  NodeMeeting& meeting_;
  const Round& round_;
  const StopSignals& signals_;
  RankSet ranks_;
  RosterFile roster_;
  bool roster_works_ = true;                        // the last one from another node could be written
  std::unique_ptr<membership::Attester> attester_;  // null if there is only one node
  RestartHistory history_;
  int restarts_;                     // of the job, as far as this node knows
  std::map<int, Deadline> pending_;  // replacements by local rank, and when they start
  bool finishing_ = false;
  RoundResult result_;
};

}  // namespace

RoundResult supervise_elastic(Job& job, NodeMeeting& meeting, const Round& round, const StopSignals& signals) {
  return ElasticSupervisor(job, meeting, round, signals).run();
}

}  // namespace lockstep::launch
