#include "simulation/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "lockstep/base/secret.h"
#include "membership/attester.h"
#include "membership/quorum.h"
#include "membership/roster.h"
#include "membership/witness.h"
#include "simulation/network.h"
#include "simulation/training_model.h"
#include "store/tcp/tcp_store_server.h"

namespace lockstep::simulation {
namespace {

using namespace std::chrono_literals;

constexpr const char* kSecretText = "0123456789abcdef0123456789abcdef";
constexpr std::uint16_t kMasterPort = 29500;
constexpr std::uint16_t kWitnessPort = 29401;
constexpr const char* kRoster = "/run/roster";
constexpr Time kFaultsEnd = 25 * kSecond;
// After this time without faults the job must make progress.
constexpr Time kCalm = 60 * kSecond;
constexpr std::int64_t kEnoughSteps = 20;

// As read_roster() on that host.
membership::Roster newest_roster(const Host& host) {
  membership::Roster newest;
  for (const auto& [path, inode] : host.files) {
    const auto roster = membership::parse_roster(inode->data);
    if (!roster.ok() || path.find(".new.") != std::string::npos) continue;
    if (roster->finished || roster->generation.number > newest.generation.number) newest = *roster;
    if (roster->finished) break;
  }
  return newest;
}

class History {
 public:
  History(std::uint64_t seed, const HistoryOptions& options)
      : options_(options), simulation_(seed, options.verbose), random_(simulation_.random()) {}
  Outcome run();

 private:
  struct Rank {
    Process* process = nullptr;
    int host = 0;
    bool attested = false;  // its launcher has noticed its end
  };
  void plan();
  void start_launcher(int host);
  void launch(int host);
  void start_witness();
  void start_rank(int host, int number, bool newcomer, const std::string& attester);
  void attest_ends(int host, membership::Attester& attester);
  void restart_missing(int host, const std::string& attester);
  void copy_rosters(int host);
  void schedule_faults();
  void schedule_survivor();
  void fault();
  void cut(Link link);
  std::vector<Process*> living() const;
  bool has_survivor();
  bool has_quorum(const membership::Generation& generation);

  const HistoryOptions options_;
  Simulation simulation_;
  Random& random_;
  Lineage lineage_;
  int hosts_ = 1;
  int per_host_ = 1;
  std::int64_t steps_ = 0;
  int newcomers_left_ = 0;
  std::vector<Rank> ranks_;
  std::vector<Process*> launchers_;
  Process* witness_ = nullptr;  // on a host of its own; null: there is none
  bool survivor_ = false;       // schedule_survivor() instead of random faults
  bool calm_ = false;
};

void History::plan() {
  hosts_ = static_cast<int>(random_.between(1, 3));
  per_host_ = static_cast<int>(random_.between(1, hosts_ == 1 ? 5 : 3));
  newcomers_left_ = static_cast<int>(random_.below(5));
  survivor_ = random_.one_in(6);
  if (survivor_) hosts_ = 3, per_host_ = random_.one_in(2) ? 1 : 2;
  steps_ = random_.one_in(4) ? random_.between(50, 400) : 1'000'000;
}

void History::start_rank(int host, int number, bool newcomer, const std::string& attester) {
  std::map<std::string, std::string> environment = {{"RANK", std::to_string(newcomer ? 0 : number)},
                                                    {"WORLD_SIZE", std::to_string(hosts_ * per_host_)},
                                                    {"MASTER_ADDR", "10.77.0.1"},
                                                    {"MASTER_PORT", std::to_string(kMasterPort)},
                                                    {"LOCKSTEP_STORE_IS_SERVED", "1"},
                                                    {"LOCKSTEP_SECRET", kSecretText},
                                                    {"LOCKSTEP_ROSTER", kRoster},
                                                    {"LOCKSTEP_ATTESTER", attester},
                                                    {"LOCKSTEP_NEWCOMER", newcomer ? "1" : "0"}};
  if (witness_ != nullptr) {
    environment["LOCKSTEP_WITNESS"] = fmt::format("{}:{}", witness_->host().address_text(), kWitnessPort);
  }
  elastic::ParticipantOptions options;
  options.init.group.init_timeout = 30s;
  options.init.group.timeout = 30s;
  options.init.group.peer_timeout = 3s;
  options.policy.silent_timeout = 2s;
  options.policy.straggler_timeout = 10s;
  options.policy.quorum_timeout = 40s;
  options.forming = 5s;
  const std::string name = fmt::format("{}{}", newcomer ? "new" : "rank", number);
  Process& process = simulation_.start(simulation_.host(host), name, std::move(environment),
                                       [this, options] { train(options, steps_, lineage_); });
  process.set_clock(1 + static_cast<double>(random_.between(-200, 200)) * 1e-6, random_.below(1000 * kSecond));
  ranks_.push_back({.process = &process, .host = host});
}

void History::start_launcher(int host) {
  Process& process = simulation_.start(simulation_.host(host), fmt::format("launcher{}", host),
                                       {{"LOCKSTEP_SECRET", kSecretText}}, [this, host] { launch(host); });
  launchers_.push_back(&process);
  process.at_end.push_back([this, host] {  // its ranks end with it
    for (const Rank& rank : ranks_) {
      if (rank.host == host) rank.process->kill("its launcher has ended");
    }
  });
}

void History::start_witness() {
  Host& host = simulation_.add_host("witness");
  witness_ = &simulation_.start(host, "witness", {{"LOCKSTEP_SECRET", kSecretText}}, [&host] {
    const Secret secret = value_or_throw(Secret::from_environment());
    const auto witness = value_or_throw(
        membership::Witness::open({.host = host.address_text(), .port = kWitnessPort, .secret = secret}));
    while (true) std::this_thread::sleep_for(1h);
  });
}

// Starts the ranks of a host and replacements, attests their ends, serves the store in which the first generation
// meets, and exchanges rosters with the others.
void History::launch(int host) {
  const Secret secret = value_or_throw(Secret::from_environment());
  std::unique_ptr<TcpStoreServer> server;
  if (host == 0) {
    server = value_or_throw(TcpStoreServer::start({.host = "10.77.0.1", .port = kMasterPort, .secret = secret}));
  }
  const auto attester =
      value_or_throw(membership::Attester::open({.host = simulation_.host(host).address_text(), .secret = secret}));
  for (int number = host * per_host_; number < (host + 1) * per_host_; ++number) {
    start_rank(host, number, false, attester->address());
  }
  for (int turn = 0; true; ++turn) {
    std::this_thread::sleep_for(20ms);
    attest_ends(host, *attester);
    if (turn % 15 != 0) continue;
    copy_rosters(host);
    restart_missing(host, attester->address());
  }
}

void History::attest_ends(int host, membership::Attester& attester) {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].host != host || ranks_[i].process->alive() || ranks_[i].attested) continue;
    ranks_[i].attested = attester.attest(ranks_[i].process->identity(), kRoster).ok();
  }
}

void History::restart_missing(int host, const std::string& attester) {
  int here = 0;
  for (const Rank& rank : ranks_) here += rank.host == host && rank.process->alive() ? 1 : 0;
  if (here >= per_host_ || newcomers_left_ == 0 || lineage_.finished) return;
  if (value_or_throw(membership::read_roster(kRoster)).generation.number == 0) return;
  --newcomers_left_;
  start_rank(host, static_cast<int>(ranks_.size()), true, attester);
}

void History::copy_rosters(int host) {
  for (int other = 0; other < hosts_; ++other) {
    const Host &from = simulation_.host(other), &to = simulation_.host(host);
    const Network& network = simulation_.network();
    if (other == host || !launchers_.at(static_cast<std::size_t>(other))->alive()) continue;
    if (network.link(from, to) != Link::open || network.link(to, from) != Link::open) continue;
    const membership::Roster theirs = newest_roster(from);
    if (theirs.generation.number > 0) (void)membership::offer_roster(kRoster, theirs);
  }
}

std::vector<Process*> History::living() const {
  std::vector<Process*> result;
  for (const Rank& rank : ranks_) {
    if (rank.process->alive()) result.push_back(rank.process);
  }
  return result;
}

void History::cut(Link link) {
  if (hosts_ < 2) return;
  const int one = static_cast<int>(random_.below(hosts_));
  const int two = (one + 1 + static_cast<int>(random_.below(hosts_ - 1))) % hosts_;
  const bool both = !random_.one_in(3), whole = hosts_ > 2 && random_.one_in(2);
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

void History::fault() {
  if (calm_) return;
  const std::vector<Process*> processes = living();
  if (processes.empty()) return;
  Process* const victim =
      processes.at(static_cast<std::size_t>(random_.below(static_cast<std::int64_t>(processes.size()))));
  const Time pause = random_.between(50, random_.one_in(3) ? 20'000 : 4'000) * kMillisecond;
  const auto stop = [this, victim, pause] {
    victim->stop();
    simulation_.scheduler()->after(pause, [victim] { victim->resume(); });
  };
  Process* const launcher = launchers_.at(static_cast<std::size_t>(victim->host().index));
  switch (random_.below(witness_ != nullptr ? 14 : 12)) {
    case 12: simulation_.network().set_link(victim->host(), witness_->host(), Link::drop); break;
    case 13:
      if (random_.one_in(2)) witness_->kill("killed");
      break;
    case 0: victim->kill("killed"); break;
    case 1: victim->at_operation(random_.between(1, 400), [victim] { victim->kill("killed"); }); break;
    case 2: stop(); break;
    case 3:
    case 4: victim->at_operation(random_.between(1, 400), stop); break;
    case 5: cut(Link::drop); break;
    case 6: cut(options_.rejects ? Link::reject : Link::drop); break;
    case 7:  // all ranks of a host
      for (Process* const process : processes) {
        if (&process->host() == &victim->host() && (hosts_ > 1 || process != processes.front()))
          process->kill("killed");
      }
      break;
    case 8:  // a slow network
      for (int other = 0; other < hosts_; ++other) {
        simulation_.network().set_delay(victim->host(), simulation_.host(other), random_.below(30 * kMillisecond));
      }
      break;
    case 9:  // a whole host: nobody is left to attest anything
      if (hosts_ > 1) launcher->kill("killed");
      break;
    case 10:
      launcher->stop();
      simulation_.scheduler()->after(pause, [launcher] { launcher->resume(); });
      break;
    case 11:
      victim->host().disk_full = true;
      simulation_.scheduler()->after(pause, [victim] { victim->host().disk_full = false; });
      break;
  }
}

// In bursts: what happens during a recovery is what breaks recoveries.
void History::schedule_faults() {
  Time when = random_.between(500, 3000) * kMillisecond;
  const std::int64_t faults = random_.between(1, 8);
  for (std::int64_t i = 0; i < faults && when < kFaultsEnd; ++i) {
    simulation_.scheduler()->at(when, [this] { fault(); });
    when += random_.one_in(3) ? random_.below(12 * kSecond) : random_.below(800 * kMillisecond);
  }
}

// One rank stops in the middle of a recovery. The others go on, newcomers join them, and then all who knew the stopped
// one end. When it continues, it must not take their end for that of the job.
void History::schedule_survivor() {
  newcomers_left_ = 4;
  const Time begin = random_.between(500, 2000) * kMillisecond;
  simulation_.scheduler()->at(begin, [this] {
    const std::vector<Process*> old = living();
    if (old.size() < 3) return;
    const auto chosen = static_cast<std::size_t>(random_.below(static_cast<std::int64_t>(old.size())));
    Process* const survivor = old[chosen];
    survivor->at_operation(random_.between(1, 500), [survivor] { survivor->stop(); });
    old[(chosen + 1) % old.size()]->kill("killed");
    const Time later = random_.between(3000, 16'000) * kMillisecond;
    simulation_.scheduler()->after(later, [old, survivor] {
      for (Process* const process : old) {
        if (process != survivor) process->kill("killed");
      }
    });
    simulation_.scheduler()->after(later + random_.below(3 * kSecond), [survivor] { survivor->resume(); });
  });
}

bool History::has_quorum(const membership::Generation& generation) {
  std::set<std::string> living, ended;
  for (const membership::Member& member : generation.members) {
    const Process* const process = simulation_.find_process(static_cast<int>(member.pid));
    const auto host = static_cast<std::size_t>(process->host().index);
    if (process->alive()) living.insert(member.id);
    if (!process->alive() && launchers_.at(host)->alive()) ended.insert(member.id);
  }
  auto tie_breaker = membership::TieBreaker::first_member;
  // Whether the generation has a witness is not known here: either may break the tie.
  if (witness_ != nullptr) tie_breaker = membership::TieBreaker::lost_witness;
  return membership::count_quorum(generation.ids(), ended, living, tie_breaker).reached;
}

// A living member of the newest generation that any host knows has the state of the last committed step, and the living
// ones are a quorum of that generation and of the newest one that has trained. Others cannot know whether that
// generation has committed more.
bool History::has_survivor() {
  membership::Generation newest;
  for (int host = 0; host < hosts_; ++host) {
    const membership::Generation generation = newest_roster(simulation_.host(host)).generation;
    if (generation.number > newest.number) newest = generation;
  }
  const bool has_state = std::any_of(newest.members.begin(), newest.members.end(), [&](const auto& member) {
    const Process* const process = simulation_.find_process(static_cast<int>(member.pid));
    return process->alive() && lineage_.has_last_step(*process);
  });
  return has_state && has_quorum(newest) && has_quorum(lineage_.newest_established());
}

Outcome History::run() {
  plan();
  for (int host = 0; host < hosts_; ++host) simulation_.add_host(fmt::format("host{}", host));
  if (hosts_ > 1 && random_.one_in(3)) start_witness();
  for (int host = 0; host < hosts_; ++host) start_launcher(host);
  if (survivor_) {
    schedule_survivor();
  } else {
    schedule_faults();
  }
  const auto check = [this] {
    if (!lineage_.violation().empty()) simulation_.scheduler()->stop();
  };
  simulation_.scheduler()->run(kFaultsEnd);
  check();
  calm_ = true;
  simulation_.log("--- calm");
  simulation_.network().heal();
  for (int host = 0; host < hosts_; ++host) simulation_.host(host).disk_full = false;
  for (const auto& process : simulation_.processes()) {
    process->forget_trigger();
    process->resume();
  }
  const std::int64_t before = lineage_.steps();
  const bool can_continue = has_survivor();
  // Some time after the first step, so that a second lineage would show itself.
  for (Time end = kFaultsEnd; lineage_.violation().empty() && end < kFaultsEnd + kCalm && !living().empty();) {
    simulation_.scheduler()->run(end += 5 * kSecond);
    if (lineage_.finished || lineage_.steps() > before + kEnoughSteps) break;
  }
  if (!lineage_.finished && lineage_.steps() <= before && can_continue) {
    lineage_.report(fmt::format("no progress: a rank has the state of step {}, and all are connected for {} s", before,
                                kCalm / kSecond));
  }
  return {.violation = lineage_.violation(),
          .steps = lineage_.steps(),
          .finished = lineage_.finished,
          .switches = simulation_.scheduler()->switches(),
          .virtual_seconds = static_cast<double>(simulation_.now()) / kSecond};
}

}  // namespace

Outcome run_history(std::uint64_t seed, const HistoryOptions& options) { return History(seed, options).run(); }

}  // namespace lockstep::simulation
