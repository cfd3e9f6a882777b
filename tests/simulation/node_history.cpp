#include "simulation/node_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "base/process_state.h"
#include "base/random.h"
#include "launch/meeting/store_meeting.h"
#include "lockstep/base/secret.h"
#include "membership/attester.h"
#include "membership/quorum.h"
#include "membership/witness.h"
#include "simulation/network.h"
#include "simulation/observer.h"
#include "simulation/process.h"
#include "simulation/void_generation.h"

namespace lockstep::simulation {
namespace {

using namespace std::chrono_literals;
using launch::MeetingEvent;
using launch::Round;
using launch::StoreMeeting;

constexpr std::uint16_t kPort = 29400;
constexpr std::uint16_t kWitnessPort = 29401;
constexpr const char* kRosters = "/run/rounds-";  // of all launchers
constexpr Time kFaultsBegin = 4 * kSecond;
constexpr Time kFaultsEnd = 30 * kSecond;  // at the latest
constexpr Time kCalm = 90 * kSecond;
constexpr Time kStepTime = 50 * kMillisecond;
constexpr Time kPeerTimeout = 10 * kSecond;
constexpr int kEnoughSteps = 20;

class NodeHistory {
 public:
  NodeHistory(std::uint64_t seed, const HistoryOptions& options)
      : options_(options),
        protection_(protection_of(seed)),
        void_round_(has_void_generation(seed)),
        simulation_(seed, options.verbose),
        random_(simulation_.random()) {}
  Outcome run();

 private:
  struct Node {
    int host = 0;
    Process* launcher = nullptr;
    Process* guard = nullptr;
    std::string attester = {};        // where the guard listens; empty: not yet
    std::string roster = {};          // of the launcher
    Time ended = kNever;              // when the launcher ended
    std::optional<Round> round = {};  // in which its ranks are
    std::string round_identity = {};
    std::set<std::string> stopped = {};  // rounds in which they were
  };
  void plan();
  void start_node(int host);
  void start_witness();
  std::string witness_address() { return fmt::format("{}:{}", simulation_.host(hosts_).address_text(), kWitnessPort); }
  void run_launcher(Node& node);
  void run_guard(Node& node);
  void work(Node& node, StoreMeeting& meeting);
  void train();
  bool has_stopped_elsewhere(const Node& node);
  // Whether the ranks of its round make steps.
  bool trains(const Node& node);
  bool is_another_job(const Round& round);
  void fault();
  void cut(Link link);
  void schedule_faults();
  bool can_continue();
  std::vector<membership::Generation> accepted_rounds() { return accepted_generations(simulation_, kRosters); }
  std::string witness_of(const membership::Generation& round);
  std::optional<membership::Generation> newest_established();
  std::vector<Node*> living();

  const HistoryOptions options_;
  const std::map<std::string, std::string> protection_;
  const bool void_round_;  // schedule_void_round() instead of random faults
  Simulation simulation_;
  Random& random_;
  int hosts_ = 2;
  bool restarts_ = false;  // launchers that ended are replaced
  bool has_witness_ = false;
  Process* witness_ = nullptr;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::map<std::string, Node*> by_id_;
  std::string violation_;
  std::int64_t steps_ = 0;
  int newest_number_ = -1;
  std::string newest_round_;             // its identity
  std::set<std::string> trained_ids_;    // of all nodes that have trained
  bool another_job_ = false;             // the history ends there
  membership::Generation trained_ = {};  // the same round
  Time faults_end_ = kFaultsEnd;
  bool calm_ = false;
};

// Two rounds of one number are different if they have different nodes.
std::string identity(const Round& round) {
  std::string text = fmt::format("{}", round.number);
  for (const auto& node : round.nodes) text += " " + node.id;
  return text;
}

void NodeHistory::plan() {
  hosts_ = static_cast<int>(random_.between(2, 4));
  has_witness_ = random_.one_in(2);
  restarts_ = random_.one_in(2);
  if (void_round_) hosts_ = 4, restarts_ = false;
}

void NodeHistory::start_node(int host) {
  if (!simulation_.network().has_power(simulation_.host(host))) return;
  nodes_.push_back(std::make_unique<Node>());
  Node& node = *nodes_.back();
  node.host = host;
  node.roster = fmt::format("{}{}", kRosters, nodes_.size());
  const auto start = [&](const char* what, std::function<void()> body) {
    Process& process = simulation_.start(simulation_.host(host), fmt::format("{}{}", what, nodes_.size() - 1),
                                         protection_, std::move(body));
    process.set_clock(1 + static_cast<double>(random_.between(-200, 200)) * 1e-6, random_.below(1000 * kSecond));
    return &process;
  };
  node.launcher = start("launcher", [this, &node] { run_launcher(node); });
  node.launcher->at_end.push_back([this, &node] { node.ended = simulation_.now(); });
  node.guard = start("guard", [this, &node] { run_guard(node); });
}

// On a host of its own.
void NodeHistory::start_witness() {
  Host& host = simulation_.add_host("witness");
  witness_ = &simulation_.start(host, "witness", protection_, [&host] {
    const Secret secret = value_or_throw(Secret::from_environment());
    const auto witness = value_or_throw(
        membership::Witness::open({.host = host.address_text(), .port = kWitnessPort, .secret = secret}));
    while (true) std::this_thread::sleep_for(1h);
  });
}

void NodeHistory::run_guard(Node& node) {
  const Secret secret = value_or_throw(Secret::from_environment());
  const auto attester = value_or_throw(
      membership::Attester::open({.host = simulation_.host(node.host).address_text(), .secret = secret}));
  node.attester = attester->address();
  Scheduler& scheduler = *simulation_.scheduler();
  node.launcher->at_end.push_back([&scheduler, guard = scheduler.current()] { scheduler.wake(guard); });
  while (node.launcher->alive()) scheduler.sleep_until(kNever);
  while (!attester->attest(node.launcher->identity(), node.roster).ok()) std::this_thread::sleep_for(100ms);
  while (true) std::this_thread::sleep_for(1h);
}

void NodeHistory::run_launcher(Node& node) {
  launch::StoreMeetingOptions options;
  for (int host = 0; host < (options_.one_endpoint ? 1 : hosts_); ++host) {
    options.endpoints.push_back({.host = simulation_.host(host).address_text(), .port = kPort});
  }
  options.job = {.run_id = "job", .min_nodes = restarts_ ? hosts_ / 2 + 1 : 1, .max_nodes = hosts_};
  const ProcessIdentity process = this_process();
  options.self = {
      .id = random_hex(8), .host = simulation_.host(node.host).name, .pid = process.pid, .nproc = 1, .address = {}};
  options.self.started = process.started;
  options.secret = value_or_throw(Secret::from_environment());
  options.last_call_timeout = 1s;
  options.silent_timeout = 3s;
  options.linger = 1s;
  if (has_witness_) options.witness = witness_address();
  options.roster = node.roster;
  options.open_attester = [&node](const std::string&) -> Result<std::string> {
    while (node.attester.empty()) std::this_thread::sleep_for(1ms);
    return node.attester;
  };
  by_id_[options.self.id] = &node;
  const auto meeting = value_or_throw(StoreMeeting::open(options));
  while (true) {
    const auto round = meeting->next_round(Deadline::after(10min), nullptr);
    if (!round.ok()) {
      simulation_.log(round.status().to_string());
      return;
    }
    simulation_.log(fmt::format("enters round {}", identity(*round)));
    node.round = *round;
    node.round_identity = identity(*round);
    work(node, *meeting);
    node.stopped.insert(node.round_identity);
    node.round.reset();
    std::this_thread::sleep_for(
        std::chrono::microseconds(random_.between(0, 200'000)));  // until its ranks have stopped
  }
}

// Returns when this node has to meet the others again.
void NodeHistory::work(Node& node, StoreMeeting& meeting) {
  const Time fails = calm_ || !random_.one_in(4) ? kNever : simulation_.now() + random_.below(10 * kSecond);
  while (true) {
    const MeetingEvent event = meeting.poll();
    if (event.kind == MeetingEvent::Kind::rank_failed || event.kind == MeetingEvent::Kind::node_lost) return;
    if (simulation_.now() >= fails || has_stopped_elsewhere(node)) {
      launch::RankFailure failure;
      failure.exit_code = 1;
      (void)meeting.report_failure(failure);
      return;
    }
    std::this_thread::sleep_for(20ms);
  }
}

// A node stopped its ranks of this round, or it ended longer ago than ranks wait for a peer that does not answer: those
// of the others fail.
bool NodeHistory::has_stopped_elsewhere(const Node& node) {
  return std::ranges::any_of(node.round->nodes, [&](const auto& record) {
    const Node& other = *by_id_.at(record.id);
    if (!other.launcher->alive()) return simulation_.now() - other.ended > kPeerTimeout;
    return other.stopped.contains(node.round_identity);
  });
}

bool NodeHistory::trains(const Node& node) {
  const Round& round = *node.round;
  const auto is_in = [&](const launch::NodeRecord& record) {
    const Node& other = *by_id_.at(record.id);
    return other.launcher->alive() && other.round && other.round_identity == node.round_identity;
  };
  if (!std::ranges::all_of(round.nodes, is_in)) return false;
  for (const auto& one : round.nodes) {
    for (const auto& two : round.nodes) {
      const Host &from = simulation_.host(by_id_.at(one.id)->host), &to = simulation_.host(by_id_.at(two.id)->host);
      if (simulation_.network().link(from, to) != Link::open) return false;
    }
  }
  return true;
}

// MIN launchers that can know nothing of the job start it again: that is another job (docs/nodes.md, Limits).
bool NodeHistory::is_another_job(const Round& round) {
  const auto is_known = [&](const auto& record) { return trained_ids_.contains(record.id); };
  const bool is_other = !trained_ids_.empty() && std::ranges::none_of(round.nodes, is_known);
  for (const auto& record : round.nodes) trained_ids_.insert(record.id);
  return is_other;
}

// Every round that can train commits a step.
void NodeHistory::train() {
  std::set<std::string> done;
  for (const auto& node : nodes_) {
    if (!node->round || !node->launcher->alive() || done.contains(node->round_identity)) continue;
    const Round& round = *node->round;
    if (!trains(*node)) continue;
    done.insert(node->round_identity);
    ++steps_;
    if (is_another_job(round)) {
      another_job_ = true;
      return simulation_.scheduler()->stop();
    }
    const bool is_older = round.number < newest_number_;
    const bool is_rival = round.number == newest_number_ && node->round_identity != newest_round_;
    if ((is_older || is_rival) && violation_.empty()) {
      violation_ = fmt::format("two lineages: round [{}] trains at {:.3f}, after round [{}]", node->round_identity,
                               static_cast<double>(simulation_.now()) / kSecond, newest_round_);
    }
    if (round.number <= newest_number_) continue;
    newest_number_ = round.number;
    newest_round_ = node->round_identity;
    trained_ = {.number = round.number + 1, .id = newest_round_, .members = {}};
    for (const auto& record : round.nodes) trained_.members.push_back({.id = record.id});
    trained_.witness = witness_of(trained_);
  }
  if (!violation_.empty()) return simulation_.scheduler()->stop();
  simulation_.scheduler()->after(kStepTime, [this] { train(); });
}

std::vector<NodeHistory::Node*> NodeHistory::living() {
  std::vector<Node*> result;
  for (const auto& node : nodes_) {
    if (node->launcher->alive()) result.push_back(node.get());
  }
  return result;
}

void NodeHistory::cut(Link link) {
  const int one = static_cast<int>(random_.below(hosts_));
  const int two = (one + 1 + static_cast<int>(random_.below(hosts_ - 1))) % hosts_;
  const bool both = !random_.one_in(3), whole = random_.one_in(2);
  const auto set = [this, one, two, both, whole](Link state) {
    for (int other = 0; other < hosts_; ++other) {
      if (other == one || (!whole && other != two)) continue;
      simulation_.network().set_link(simulation_.host(one), simulation_.host(other), state);
      if (both) simulation_.network().set_link(simulation_.host(other), simulation_.host(one), state);
    }
  };
  simulation_.log(fmt::format("--- {} between {} and {}{}", link == Link::drop ? "drops" : "rejects", one,
                              whole ? -1 : two, both ? "" : " (one way)"));
  set(link);
  simulation_.scheduler()->after(random_.between(100, 20'000) * kMillisecond, [this, set] {
    if (calm_) return;
    simulation_.log("--- the link is open again");
    set(Link::open);
  });
}

void NodeHistory::fault() {
  const std::vector<Node*> nodes = living();
  if (calm_ || nodes.empty()) return;
  Node* const victim = nodes.at(static_cast<std::size_t>(random_.below(static_cast<std::int64_t>(nodes.size()))));
  Process* const launcher = victim->launcher;
  const Time pause = random_.between(50, random_.one_in(3) ? 20'000 : 4'000) * kMillisecond;
  const auto stop = [this, launcher, pause] {
    launcher->stop();
    simulation_.scheduler()->after(pause, [launcher] { launcher->resume(); });
  };
  const auto kill = [this, victim, pause] {
    victim->launcher->kill("killed");
    if (restarts_) {
      simulation_.scheduler()->after(pause, [this, victim] { start_node(victim->host); });
    }
  };
  switch (random_.below(has_witness_ ? 13 : 11)) {
    case 0: kill(); break;
    case 1: launcher->at_operation(random_.between(1, 400), kill); break;
    case 2: stop(); break;
    case 3: launcher->at_operation(random_.between(1, 400), stop); break;
    case 4: cut(Link::drop); break;
    case 5:
    case 6:
    case 7: cut(options_.rejects ? Link::reject : Link::drop); break;
    case 8:  // a whole host: nothing is left to attest anything
      victim->guard->kill("killed");
      kill();
      break;
    case 10:  // the same, and its kernel answers nothing either
      simulation_.network().power_off(launcher->host());
      for (const auto& process : simulation_.processes()) {
        if (&process->host() == &launcher->host()) process->kill("its host has lost power");
      }
      break;
    case 11:  // the witness gets no packets from a host
      simulation_.network().set_link(victim->launcher->host(), witness_->host(), Link::drop);
      break;
    case 12:
      if (random_.one_in(2)) witness_->kill("killed");
      break;
    case 9:
      launcher->host().disk_full = true;
      simulation_.scheduler()->after(pause, [launcher] { launcher->host().disk_full = false; });
      break;
  }
}

void NodeHistory::schedule_faults() {
  Time when = kFaultsBegin;
  const std::int64_t faults = random_.between(1, 8);
  for (std::int64_t i = 0; i < faults && when < kFaultsEnd; ++i) {
    simulation_.scheduler()->at(when, [this] { fault(); });
    when += random_.one_in(3) ? random_.below(12 * kSecond) : random_.below(1500 * kMillisecond);
  }
  if (!random_.one_in(4)) faults_end_ = std::min(when + random_.below(12 * kSecond), kFaultsEnd);
}

// Its coordinator may know that all of its nodes have accepted it, although none has entered it yet.
std::optional<membership::Generation> NodeHistory::newest_established() {
  std::map<std::string, std::size_t> nodes;  // by id of the round: how many of them have accepted it
  std::optional<membership::Generation> newest;
  for (membership::Generation& round : accepted_rounds()) {
    if (++nodes[round.id] != round.members.size() || (newest && newest->number > round.number)) continue;
    newest = std::move(round);
  }
  return newest;
}

std::string NodeHistory::witness_of(const membership::Generation& round) {
  for (const membership::Generation& accepted : accepted_rounds()) {
    if (accepted.number == round.number && accepted.ids() == round.ids()) return accepted.witness;
  }
  return "";
}

// The living launchers are a quorum of the newest round that any launcher has accepted, and of the newest that trained.
bool NodeHistory::can_continue() {
  std::set<std::string> living, ended;
  for (const auto& [id, node] : by_id_) {
    if (node->launcher->alive()) living.insert(id);
    if (!node->launcher->alive() && node->guard->alive()) ended.insert(id);
  }
  std::vector<membership::Generation> newest;
  for (membership::Generation& round : accepted_rounds()) {
    if (!newest.empty() && round.number < newest.front().number) continue;
    if (!newest.empty() && round.number > newest.front().number) newest.clear();
    newest.push_back(std::move(round));
  }
  newest.push_back(trained_);
  if (auto established = newest_established()) newest.push_back(*std::move(established));
  const int min_nodes = restarts_ ? hosts_ / 2 + 1 : 1;
  // Without a launcher at the endpoint, a new one cannot find the job.
  const auto is_at_endpoint = [&](const auto& node) { return node->launcher->alive() && node->host == 0; };
  if (options_.one_endpoint && std::ranges::none_of(nodes_, is_at_endpoint)) {
    std::erase_if(living, [&](const std::string& id) { return newest.front().rank_of(id) < 0; });
  }
  return static_cast<int>(living.size()) >= min_nodes && std::ranges::all_of(newest, [&](const auto& generation) {
           auto tie_breaker = membership::TieBreaker::first_member;
           if (!generation.witness.empty()) {
             tie_breaker = witness_->alive() ? membership::TieBreaker::witness : membership::TieBreaker::lost_witness;
           }
           return membership::count_quorum(generation.ids(), ended, living, tie_breaker).reached;
         });
}

Outcome NodeHistory::run() {
  plan();
  for (int host = 0; host < hosts_; ++host) simulation_.add_host(fmt::format("host{}", host));
  if (has_witness_) start_witness();
  for (int host = 0; host < hosts_ - (void_round_ ? 1 : 0); ++host) start_node(host);
  if (void_round_) {
    schedule_void_round(simulation_,
                        {.roster = kRosters,
                         .established = [this] { return newest_established().value_or(membership::Generation{}); },
                         .launcher = [this](const membership::Member& node) { return by_id_.at(node.id)->launcher; },
                         .start_newcomer = [this] { start_node(hosts_ - 1); },
                         .newcomer = [this] { return nodes_.back()->launcher; }},
                        kFaultsBegin);
  } else {
    schedule_faults();
  }
  simulation_.scheduler()->at(kSecond, [this] { train(); });
  simulation_.scheduler()->run(faults_end_);
  calm_ = true;
  simulation_.log("--- calm");
  simulation_.network().heal();
  for (int host = 0; host < hosts_; ++host) simulation_.host(host).disk_full = false;
  for (const auto& process : simulation_.processes()) {
    process->forget_trigger();
    process->resume();
  }
  if (steps_ == 0) violation_ = "no round has trained before the first fault";
  const bool can_go_on = can_continue();
  const std::int64_t before = steps_;
  for (Time end = faults_end_; violation_.empty() && !another_job_ && end < faults_end_ + kCalm;) {
    simulation_.scheduler()->run(end += kSecond);
    if (steps_ > before + kEnoughSteps) break;
  }
  if (violation_.empty() && !another_job_ && can_go_on && steps_ == before) {
    violation_ = fmt::format("no progress: the living nodes are a quorum, and connected for {} s", kCalm / kSecond);
  }
  return {.violation = violation_,
          .steps = steps_,
          .finished = false,
          .switches = simulation_.scheduler()->switches(),
          .virtual_seconds = static_cast<double>(simulation_.now()) / kSecond,
          .next_random = random_.next()};
}

}  // namespace

Outcome run_node_history(std::uint64_t seed, const HistoryOptions& options) { return NodeHistory(seed, options).run(); }

}  // namespace lockstep::simulation
