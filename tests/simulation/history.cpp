#include "simulation/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "base/random.h"
#include "launch/meeting/roster_file.h"
#include "launch/meeting/store_meeting.h"
#include "lockstep/base/secret.h"
#include "membership/attester.h"
#include "membership/decision.h"
#include "membership/quorum.h"
#include "membership/roster.h"
#include "membership/witness.h"
#include "simulation/network.h"
#include "simulation/observer.h"
#include "simulation/training_model.h"
#include "simulation/void_generation.h"
#include "store/tcp/tcp_store_server.h"

namespace lockstep::simulation {
namespace {

using namespace std::chrono_literals;

constexpr std::uint16_t kMeetingPort = 29400;
constexpr std::uint16_t kMasterPort = 29500;
constexpr std::uint16_t kWitnessPort = 29401;
constexpr const char* kRoster = "/run/roster";
constexpr const char* kRounds = "/run/rounds";
constexpr Time kFaultsEnd = 25 * kSecond;  // at the latest
// After this time without faults the job must make progress.
constexpr Time kCalm = 60 * kSecond;
constexpr std::int64_t kEnoughSteps = 20;

class History {
 public:
  History(std::uint64_t seed, const HistoryOptions& options)
      : options_(options),
        protection_(protection_of(seed)),
        void_generation_(has_void_generation(seed)),
        simulation_(seed, options.verbose),
        random_(simulation_.random()) {}
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
  struct Start {
    int host = 0;
    int number = 0;
    bool newcomer = false;
    HostPort master = {};
    std::string attester = {};
  };
  void start_rank(const Start& start);
  launch::StoreMeetingOptions meeting_options(int host, const std::string& attester);
  std::string witness_address() const;
  void attest_ends(int host, membership::Attester& attester);
  bool lacks_rank(int host);
  void schedule_faults();
  void schedule_survivor();
  void fault();
  void cut(Link link);
  std::vector<Process*> living() const;
  bool has_survivor();
  // The running process ends the job because no process has the state.
  void check_state_lost();
  // Whether a living member has the state of the last committed step.
  bool has_state(const membership::Generation& generation);
  bool has_quorum(const membership::Generation& generation);

  const HistoryOptions options_;
  const std::map<std::string, std::string> protection_;
  const bool void_generation_;  // schedule_void_generation() instead of both
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
  Time faults_end_ = kFaultsEnd;
  bool calm_ = false;
};

void History::plan() {
  hosts_ = static_cast<int>(random_.between(1, 3));
  per_host_ = static_cast<int>(random_.between(1, hosts_ == 1 ? 5 : 3));
  newcomers_left_ = static_cast<int>(random_.below(5));
  survivor_ = random_.one_in(6);
  if (survivor_) hosts_ = 3, per_host_ = random_.one_in(2) ? 1 : 2;
  if (void_generation_) per_host_ = std::max(per_host_, 2), newcomers_left_ = 4;
  steps_ = random_.one_in(4) ? random_.between(50, 400) : 1'000'000;
}

void History::start_rank(const Start& start) {
  std::map<std::string, std::string> environment = {{"RANK", std::to_string(start.newcomer ? 0 : start.number)},
                                                    {"WORLD_SIZE", std::to_string(hosts_ * per_host_)},
                                                    {"MASTER_ADDR", start.master.host},
                                                    {"MASTER_PORT", std::to_string(start.master.port)},
                                                    {"LOCKSTEP_STORE_IS_SERVED", "1"},
                                                    {"LOCKSTEP_ROSTER", kRoster},
                                                    {"LOCKSTEP_ATTESTER", start.attester},
                                                    {"LOCKSTEP_WITNESS", witness_address()},
                                                    {"LOCKSTEP_NEWCOMER", start.newcomer ? "1" : "0"}};
  environment.insert(protection_.begin(), protection_.end());
  elastic::ParticipantOptions options;
  options.init.group.init_timeout = 30s;
  options.init.group.timeout = 30s;
  options.init.group.peer_timeout = 3s;
  options.policy.silent_timeout = 2s;
  options.policy.straggler_timeout = 10s;
  options.policy.quorum_timeout = 40s;
  options.forming = 5s;
  const std::string name = fmt::format("{}{}", start.newcomer ? "new" : "rank", start.number);
  Process& process = simulation_.start(simulation_.host(start.host), name, std::move(environment), [this, options] {
    try {
      train(options, steps_, lineage_);
    } catch (const Error& error) {
      if (std::string_view(error.what()).ends_with(membership::kStateLost)) check_state_lost();
      throw;
    }
  });
  process.set_clock(1 + static_cast<double>(random_.between(-200, 200)) * 1e-6, random_.below(1000 * kSecond));
  ranks_.push_back({.process = &process, .host = start.host});
}

std::string History::witness_address() const {
  return witness_ == nullptr ? "" : fmt::format("{}:{}", witness_->host().address_text(), kWitnessPort);
}

void History::start_launcher(int host) {
  Process& process = simulation_.start(simulation_.host(host), fmt::format("launcher{}", host), protection_,
                                       [this, host] { launch(host); });
  launchers_.push_back(&process);
  process.at_end.push_back([this, host] {  // its ranks end with it
    for (const Rank& rank : ranks_) {
      if (rank.host == host) rank.process->kill("its launcher has ended");
    }
  });
}

void History::start_witness() {
  Host& host = simulation_.add_host("witness");
  witness_ = &simulation_.start(host, "witness", protection_, [&host] {
    const Secret secret = value_or_throw(Secret::from_environment());
    const auto witness = value_or_throw(
        membership::Witness::open({.host = host.address_text(), .port = kWitnessPort, .secret = secret}));
    while (true) std::this_thread::sleep_for(1h);
  });
}

// How the launcher of one of several hosts meets the others.
launch::StoreMeetingOptions History::meeting_options(int host, const std::string& attester) {
  launch::StoreMeetingOptions options;
  for (int other = 0; other < hosts_; ++other) {
    options.endpoints.push_back({.host = simulation_.host(other).address_text(), .port = kMeetingPort});
  }
  options.job = {.run_id = "job", .min_nodes = hosts_, .max_nodes = hosts_, .elastic = true};
  const ProcessIdentity process = this_process();
  options.self = {.id = random_hex(8),
                  .host = simulation_.host(host).name,
                  .pid = process.pid,
                  .nproc = per_host_,
                  .address = {},
                  .node_rank = host};
  options.self.started = process.started;
  options.secret = value_or_throw(Secret::from_environment());
  options.silent_timeout = 3s;
  options.linger = 1s;
  options.witness = witness_address();
  options.roster = kRounds;
  options.open_attester = [attester](const std::string&) { return Result<std::string>(attester); };
  return options;
}

// Starts the ranks of a host and replacements, attests their ends, serves the store in which the first generation
// meets, and exchanges rosters with the others.
void History::launch(int host) {
  const Secret secret = value_or_throw(Secret::from_environment());
  const std::string address = simulation_.host(host).address_text();
  const auto attester = value_or_throw(membership::Attester::open({.host = address, .secret = secret}));
  std::unique_ptr<launch::StoreMeeting> meeting;
  std::unique_ptr<TcpStoreServer> server;
  HostPort master{.host = address, .port = kMasterPort};
  if (hosts_ > 1) {
    meeting = value_or_throw(launch::StoreMeeting::open(meeting_options(host, attester->address())));
    const launch::Round round = value_or_throw(meeting->next_round(Deadline::after(60s), nullptr));
    master = {.host = round.master_addr, .port = round.master_port};
  } else {
    server = value_or_throw(TcpStoreServer::start({.host = master.host, .port = master.port, .secret = secret}));
  }
  for (int number = host * per_host_; number < (host + 1) * per_host_; ++number) {
    start_rank({.host = host, .number = number, .master = master, .attester = attester->address()});
  }
  launch::RosterFile roster(kRoster);
  while (true) {
    std::this_thread::sleep_for(20ms);
    attest_ends(host, *attester);
    if (meeting) {  // as launch/elastic_supervisor.cpp
      if (const auto mine = roster.take_newer()) throw_if_error(meeting->publish_roster(*mine));
      if (const auto theirs = meeting->newest_roster()) (void)roster.offer(*theirs);
      while (meeting->poll().kind != launch::MeetingEvent::Kind::none) continue;
    }
    if (!lacks_rank(host)) continue;
    --newcomers_left_;
    start_rank({.host = host,
                .number = static_cast<int>(ranks_.size()),
                .newcomer = true,
                .master = master,
                .attester = attester->address()});
  }
}

void History::attest_ends(int host, membership::Attester& attester) {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].host != host || ranks_[i].process->alive() || ranks_[i].attested) continue;
    ranks_[i].attested = attester.attest(ranks_[i].process->identity(), kRoster).ok();
  }
}

// A rank that has ended is replaced after a while.
bool History::lacks_rank(int host) {
  const auto is_here = [&](const Rank& rank) { return rank.host == host && rank.process->alive(); };
  if (std::ranges::count_if(ranks_, is_here) >= per_host_ || newcomers_left_ == 0 || lineage_.finished) return false;
  return random_.one_in(15) && value_or_throw(membership::newest_number(kRoster)) > 0;
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
  switch (random_.below(witness_ != nullptr ? 15 : 13)) {
    case 13: simulation_.network().set_link(victim->host(), witness_->host(), Link::drop); break;
    case 14:
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
    case 12:  // the same, and its kernel answers nothing either
      if (hosts_ == 1) break;
      simulation_.network().power_off(launcher->host());
      launcher->kill("its host has lost power");
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
  Time when = random_.between(600, 3000) * kMillisecond;
  const std::int64_t faults = random_.between(1, 8);
  for (std::int64_t i = 0; i < faults && when < kFaultsEnd; ++i) {
    simulation_.scheduler()->at(when, [this] { fault(); });
    when += random_.one_in(3) ? random_.below(12 * kSecond) : random_.below(800 * kMillisecond);
  }
  if (!random_.one_in(4)) faults_end_ = std::min(when + random_.below(12 * kSecond), kFaultsEnd);
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

bool History::has_state(const membership::Generation& generation) {
  return std::ranges::any_of(generation.members, [&](const auto& member) {
    const Process* const process = simulation_.find_process(static_cast<int>(member.pid));
    return process->alive() && lineage_.has_last_step(*process);
  });
}

// The living ranks are a quorum of the newest generation that has trained, and one of them has the state of the last
// committed step. If it is a member of the newest generation that any host knows, they are a quorum of that, too.
// Otherwise of all newer ones: others cannot know whether one of these has committed more.
bool History::has_survivor() {
  const membership::Generation& established = lineage_.newest_established();
  if (!has_quorum(established)) return false;
  const auto newer = accepted_after(simulation_, kRoster, established);
  if (newer.empty()) return has_state(established);
  const membership::Generation& newest = *std::ranges::max_element(newer, {}, &membership::Generation::number);
  if (has_state(newest) && has_quorum(newest)) return true;
  return has_state(established) && std::ranges::all_of(newer, [this](const auto& one) { return has_quorum(one); });
}

// Of a newcomer it only means that the ranks that it knows have ended. A member has decided it with a quorum.
void History::check_state_lost() {
  const Process& self = *Simulation::process();
  const auto is_self = [&](const membership::Member& member) { return member.pid == self.pid(); };
  const bool is_member = std::ranges::any_of(accepted_generations(simulation_, kRoster), [&](const auto& generation) {
    return std::ranges::any_of(generation.members, is_self);
  });
  const bool has_state = std::ranges::any_of(ranks_, [this](const Rank& rank) {
    return rank.process->alive() && !rank.process->stopped() && lineage_.has_last_step(*rank.process);
  });
  if (!is_member || !has_state || !has_survivor()) return;
  lineage_.report(fmt::format("{} ends the job at {:.3f}, although a rank has the state of step {}", self.name(),
                              static_cast<double>(simulation_.now()) / kSecond, lineage_.steps()));
}

Outcome History::run() {
  plan();
  for (int host = 0; host < hosts_; ++host) simulation_.add_host(fmt::format("host{}", host));
  if (hosts_ > 1 && random_.one_in(3)) start_witness();
  for (int host = 0; host < hosts_; ++host) start_launcher(host);
  if (void_generation_) {
    schedule_void_generation(simulation_,
                             {.roster = kRoster,
                              .living = [this] { return living(); },
                              .established = [this] { return lineage_.newest_established(); }},
                             random_.between(800, 2500) * kMillisecond);
  } else if (survivor_) {
    schedule_survivor();
  } else {
    schedule_faults();
  }
  const auto check = [this] {
    if (!lineage_.violation().empty()) simulation_.scheduler()->stop();
  };
  simulation_.scheduler()->run(faults_end_);
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
  for (Time end = faults_end_; lineage_.violation().empty() && end < faults_end_ + kCalm && !living().empty();) {
    simulation_.scheduler()->run(end += kSecond);
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
          .virtual_seconds = static_cast<double>(simulation_.now()) / kSecond,
          .next_random = random_.next()};
}

}  // namespace

Outcome run_history(std::uint64_t seed, const HistoryOptions& options) { return History(seed, options).run(); }

}  // namespace lockstep::simulation
