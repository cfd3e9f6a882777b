#include "elastic/simulated_job.h"

#include <fmt/format.h>

#include <utility>

namespace lockstep::elastic {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kHeartbeat = seconds(1);
constexpr Duration kFormingLimit = seconds(3);
constexpr Duration kStepTime = milliseconds(40);
constexpr Duration kTransferTime = milliseconds(30);
constexpr Duration kKeepAlive = seconds(15);

}  // namespace

SimulatedJob::SimulatedJob(int ranks, int hosts, unsigned seed, const Policy& policy)
    : random_(seed), policy_(policy), host_is_cut_(index(hosts), false), rosters_(index(hosts)) {
  now_ += seconds(1);
  Generation first{.number = 1, .id = "first", .members = {}};
  for (int i = 0; i < ranks; ++i) {
    first.members.push_back({.id = std::to_string(i), .site = std::to_string(i * hosts / ranks)});
  }
  rosters_.assign(index(hosts), first);
  complete_.insert(first.id);
  for (int i = 0; i < ranks; ++i) {
    Process process;
    process.member = first.members[index(i)];
    process.host = i * hosts / ranks;
    process.member.site = first.members[index(i)].site;
    process.in_touch = process.stepped = now_;
    process.mode = Mode::training;
    process.accepted = process.established = first;
    process.step = 0;
    process.synced = now_;
    process.ready = now_;
    processes_.push_back(std::move(process));
  }
}

int SimulatedJob::living() const {
  return static_cast<int>(std::count_if(processes_.begin(), processes_.end(), [&](const auto& p) { return !gone(p); }));
}

bool SimulatedJob::reachable(int from, int to) const {
  const int a = processes_[index(from)].host, b = processes_[index(to)].host;
  return a == b || (!host_is_cut_[index(a)] && !host_is_cut_[index(b)]);
}

void SimulatedJob::violate(const std::string& what) {
  violations_.push_back(fmt::format("at {} ms: {}", now_.time_since_epoch() / milliseconds(1), what));
}

void SimulatedJob::kill(int process) {
  Process& victim = processes_.at(index(process));
  if (gone(victim)) return;
  unregister(process, victim);
  victim.mode = Mode::ended;
}

void SimulatedJob::add_newcomer(int host) {
  Process process;
  process.member.id = std::to_string(processes_.size());
  process.host = host;
  process.member.site = std::to_string(host);
  process.accepted = rosters_[index(host)];
  process.ready = now_;
  recover(process);
  processes_.push_back(std::move(process));
}

void SimulatedJob::heal() {
  host_is_cut_.assign(host_is_cut_.size(), false);
  for (Process& process : processes_) process.stopped = false;
}

void SimulatedJob::run_for(Duration time) {
  const TimePoint end = now_ + time;
  while (true) {
    int next = -1;
    for (int i = 0; i < processes(); ++i) {
      const Process& process = processes_[index(i)];
      if (gone(process) || process.stopped) continue;
      if (next < 0 || process.ready < processes_[index(next)].ready) next = i;
    }
    if (next < 0 || processes_[index(next)].ready >= end) break;
    now_ = std::max(now_, processes_[index(next)].ready);
    advance(next);
  }
  now_ = end;
}

void SimulatedJob::advance(int self) {
  Process& process = processes_[index(self)];
  switch (process.mode) {
    case Mode::training: train(process); break;
    case Mode::forming: form(process); break;
    case Mode::recovering: perform(self, process); break;
    case Mode::ended: break;
  }
  if (process.ready <= now_) process.ready = now_ + milliseconds(1);
}

void SimulatedJob::recover(Process& process) {
  process.mode = Mode::recovering;
  process.action.reset();
  process.silent_since = TimePoint::max();
  const bool newcomer = process.accepted.rank_of(process.member.id) < 0;
  const Registration self{.member = process.member,
                          .accepted = process.accepted,
                          .established = newcomer ? Generation{} : process.established,
                          .step = newcomer ? -1 : process.step};
  process.recovery.emplace(self, policy_, process.in_touch, now_, [this] { return fmt::format("g{}", ++fresh_ids_); });
}

// The result of an action reflects the state of the world when it ends, not when it started.
void SimulatedJob::perform(int self, Process& process) {
  if (!process.action) {
    begin(self, process, process.recovery->next(now_));
    return;
  }
  const Action action = *std::move(process.action);
  process.action.reset();
  Generation& roster = rosters_[index(process.host)];
  switch (action.kind) {
    case Action::Kind::probe: {
      const int to = process_of(action.member);
      const Process& other = processes_[index(to)];
      ProbeResult result{.asked = process.began};
      if (reachable(self, to) && gone(other)) {
        result.kind = ProbeResult::Kind::refused;
        if (other.host == process.host) result.roster = roster;
      }
      if (reachable(self, to) && !gone(other) && !other.stopped) {
        result = {.kind = ProbeResult::Kind::answered, .asked = process.began, .accepted = other.accepted};
      }
      process.recovery->on_probe(action.member, result, now_);
      break;
    }
    case Action::Kind::follow: follow(self, process, action.member); break;
    case Action::Kind::collect: {
      std::vector<Registration> here;
      std::erase_if(process.registrations, [&](const auto& one) { return one.second.expires <= now_; });
      for (const auto& [other, kept] : process.registrations) {
        if (kept.connected) here.push_back(kept.registration);
      }
      process.recovery->on_registrations(here, now_);
      break;
    }
    case Action::Kind::refresh: {
      for (std::size_t host = 0; host < rosters_.size(); ++host) {  // the launchers pass them on
        const bool linked = !host_is_cut_[host] && !host_is_cut_[index(process.host)];
        if (linked && rosters_[host].number > roster.number) roster = rosters_[host];
      }
      process.recovery->on_roster(roster, false, now_);
      break;
    }
    case Action::Kind::answer:
      for (const auto& [other, kept] : process.registrations) process.answers[other] = action.answer;
      process.registrations.clear();
      break;
    case Action::Kind::join: join(self, process, action); break;
    case Action::Kind::give_up:
      for (const auto& [other, kept] : process.registrations) process.answers[other] = action.answer;
      ++gave_up_;
      // The job must not give up for lack of a state while a process has the newest committed one.
      for (const Process& other : processes_) {
        const bool has_it =
            other.step >= committed_ && !gone(other) && other.accepted.number >= process.accepted.number;
        if (has_it && action.answer.reason.find("had the training state") != std::string::npos) {
          violate(fmt::format("process {} has the state, but the job ends because no process has it", other.member.id));
        }
      }
      kill(self);
      break;
    case Action::Kind::finished: violate("a process finished although the job has no end"); break;
  }
}

void SimulatedJob::begin(int self, Process& process, const Action& action) {
  Duration takes = milliseconds(1 + static_cast<int>(random_() % 3));
  if (action.kind == Action::Kind::probe) {
    const int to = process_of(action.member);
    if (!reachable(self, to) || processes_[index(to)].stopped) takes = milliseconds(300);
  }
  const bool keeps_registration = action.kind == Action::Kind::follow || action.kind == Action::Kind::probe;
  if (!keeps_registration) unregister(self, process);
  process.action = action;
  process.began = now_;
  process.ready = now_ + action.pause + takes;
}

void SimulatedJob::unregister(int self, Process& process) {
  if (!process.registered) return;
  const int at = *process.registered;
  process.registered.reset();
  auto& kept = processes_[index(at)].registrations;
  const auto found = kept.find(self);
  if (found == kept.end()) return;
  if (reachable(self, at)) {
    kept.erase(found);
  } else {
    found->second.expires = now_ + kKeepAlive;
  }
}

void SimulatedJob::follow(int self, Process& process, const Member& member) {
  for (const auto& [other, kept] : process.registrations) process.answers[other] = {.kind = Answer::Kind::again};
  process.registrations.clear();
  const int to = process_of(member);
  Process& leader = processes_[index(to)];
  if (!reachable(self, to) || gone(leader) || leader.stopped) {
    process.recovery->on_follow(member, {.lost = true}, now_);
    if (!gone(leader)) process.ready = now_ + seconds(1);  // detecting silence takes time
    return;
  }
  const auto answer = leader.answers.find(self);
  if (process.registered && answer != leader.answers.end()) {
    const Answer given = answer->second;
    leader.answers.erase(answer);
    process.recovery->on_follow(member, {.answer = given}, now_);
    return;
  }
  if (process.registered != to) {
    unregister(self, process);
    leader.answers.erase(self);
    process.registered = to;
  }
  leader.registrations[self] = {.registration = process.recovery->registration()};
  process.recovery->on_follow(member, {.asked = process.began, .accepted = leader.accepted}, now_);
  process.ready = now_ + milliseconds(20);
}

void SimulatedJob::join(int self, Process& process, const Action& action) {
  if (action.leads) {
    for (const Member& member : action.answer.generation.members) {
      const int other = process_of(member);
      if (other == self) continue;
      process.answers[other] = action.answer;
      process.registrations.erase(other);
    }
  } else {
    unregister(self, process);
  }
  process.step = process.recovery->registration().step;
  process.established = process.recovery->registration().established;
  process.recovery.reset();
  process.accepted = process.forming = action.answer.generation;
  process.joining = action.answer;
  Generation& roster = rosters_[index(process.host)];
  if (process.accepted.number > roster.number) roster = process.accepted;
  process.mode = Mode::forming;
  process.in_touch = process.stepped = now_;
  process.forming_since = now_;
  process.ready = now_ + milliseconds(1);
}

// All members must join. A process that has seen all join may enter the generation; one that gave up before may not.
void SimulatedJob::form(Process& process) {
  const Generation& generation = process.forming;
  bool all = true, lost = false;
  for (const Member& member : generation.members) {
    const int other = process_of(member);
    const Process& peer = processes_[index(other)];
    const bool seen = reachable(process_of(process.member), other);
    const bool in = peer.mode == Mode::forming && peer.forming.id == generation.id && !peer.stopped;
    if (!seen || !in) all = false;
    if (seen && gone(peer)) lost = true;
  }
  if (all) complete_.insert(generation.id);
  if (complete_.contains(generation.id) && random_() % 4 != 0) {
    process.mode = Mode::training;
    process.established = generation;
    process.silent_since = TimePoint::max();
    process.synced = process.joining.transfer ? now_ + kTransferTime : now_;
  } else if (lost || now_ - process.forming_since > kFormingLimit) {
    recover(process);
  } else {
    process.ready = now_ + milliseconds(5);
  }
}

void SimulatedJob::train(Process& process) {
  const int self = process_of(process.member);
  bool silent = false, newcomer = false;
  for (const Member& member : process.established.members) {
    const int other = process_of(member);
    const Process& peer = processes_[index(other)];
    const bool in = peer.mode == Mode::training && peer.established.id == process.established.id;
    const bool forming = peer.mode == Mode::forming && peer.forming.id == process.established.id;
    if (reachable(self, other) && (gone(peer) || (!in && !forming))) {  // its connection is closed
      recover(process);
      return;
    }
    if (!reachable(self, other) || peer.stopped) silent = true;
  }
  process.silent_since = silent ? std::min(process.silent_since, now_) : TimePoint::max();
  if (silent && now_ - process.silent_since >= kHeartbeat) {
    recover(process);
    return;
  }
  if (now_ >= process.synced && process.joining.generation.id == process.established.id) {
    const Process& source = processes_[index(process_of(process.established.members[index(process.joining.source)]))];
    process.step = source.step;
    process.history = source.history;
    process.joining = {};
    process.synced = now_;
  }
  if (process.established.members.front().id == process.member.id) {
    step_if_complete(process);
    for (const auto& [other, kept] : process.registrations) newcomer |= kept.connected;
    const bool room = static_cast<int>(process.established.members.size()) < policy_.max_ranks;
    if (newcomer && room && all_in_step(process.established)) {  // commit() makes all of them regroup
      for (const Member& member : process.established.members) recover(processes_[index(process_of(member))]);
      return;
    }
  }
  process.ready = now_ + kStepTime;
}

bool SimulatedJob::all_in_step(const Generation& generation) const {
  const int leader = process_of(generation.members.front());
  return std::all_of(generation.members.begin(), generation.members.end(), [&](const Member& member) {
    const int other = process_of(member);
    const Process& peer = processes_[index(other)];
    return peer.mode == Mode::training && peer.established.id == generation.id && !peer.stopped &&
           reachable(leader, other) && peer.joining.generation.id != generation.id;
  });
}

void SimulatedJob::step_if_complete(Process& leader) {
  const Generation& generation = leader.established;
  if (!all_in_step(generation)) return;
  if (generation.number < newest_ || (generation.number == newest_ && generation.id != newest_id_)) {
    violate(fmt::format("generation {} ({}) makes a step after generation {} ({}) did", generation.number,
                        generation.id, newest_, newest_id_));
  }
  newest_ = generation.number;
  newest_id_ = generation.id;
  if (leader.step < committed_) violate(fmt::format("step {} was committed, and is repeated", committed_));
  const std::int64_t step = leader.step;
  const std::uint64_t history = leader.history;
  const bool kills = kill_in_step_ && generation.members.size() > 1;
  for (const Member& member : generation.members) {
    Process& peer = processes_[index(process_of(member))];
    peer.in_touch = std::exchange(peer.stepped, now_);
    if (peer.step != step || peer.history != history) violate(fmt::format("rank {} differs", member.id));
    if (kills && random_() % 2 == 0) continue;
    peer.step = step + 1;
    peer.history = history * 1000003 + std::hash<std::string>{}(generation.id);
  }
  if (!kills) {
    committed_ = step + 1;
    return;
  }
  kill_in_step_ = false;
  kill(process_of(generation.members[random_() % generation.members.size()]));
}

int SimulatedJob::size_of_live_generation() const {
  for (const Process& process : processes_) {
    if (process.mode == Mode::training && all_in_step(process.established)) {
      return static_cast<int>(process.established.members.size());
    }
  }
  return 0;
}

std::string SimulatedJob::describe() const {
  std::string text;
  for (const Process& process : processes_) {
    if (gone(process)) continue;
    text += fmt::format("  process {} on host {}: mode {}{}, accepted {}, established {}, step {}{}\n",
                        process.member.id, process.host, static_cast<int>(process.mode),
                        process.stopped ? " (stopped)" : "", process.accepted.number, process.established.number,
                        process.step, process.recovery ? ", waits for " + process.recovery->waits_for() : "");
  }
  for (const std::string& violation : violations_) text += violation + "\n";
  return text;
}

}  // namespace lockstep::elastic
