#include "simulation/void_generation.h"

#include <algorithm>
#include <utility>

#include "simulation/network.h"
#include "simulation/observer.h"

namespace lockstep::simulation {
namespace {

using membership::Generation;

constexpr Time kPoll = 500 * kMicrosecond;
constexpr Time kPatience = 15 * kSecond;  // for each of the phases

// Calls `done` once `condition` holds; never if it takes too long.
void when(Simulation& simulation, std::function<bool()> condition, std::function<void()> done, Time until = 0) {
  if (until == 0) until = simulation.now() + kPatience;
  if (condition()) return done();
  if (simulation.now() >= until) return;
  simulation.scheduler()->after(kPoll, [&simulation, condition = std::move(condition), done = std::move(done), until] {
    when(simulation, condition, done, until);
  });
}

bool contains(const Generation& generation, const Process* process) {
  return std::ranges::any_of(generation.members, [&](const auto& member) { return member.pid == process->pid(); });
}

// Rosters are read only if there are new ones, because that takes long.
class Files {
 public:
  bool have_changed(Simulation& simulation) {
    std::size_t count = 0;
    for (int host = 0; host < simulation.hosts(); ++host) count += simulation.host(host).files.size();
    return std::exchange(count_, count) != count;
  }

 private:
  std::size_t count_ = 0;
};

class RankFaults : public std::enable_shared_from_this<RankFaults> {
 public:
  RankFaults(Simulation& simulation, VoidGenerationOptions options)
      : simulation_(simulation), random_(simulation.random()), options_(std::move(options)) {}

  void begin() {
    old_ = options_.living();
    if (old_.size() < 2) return;
    // Not the first, which breaks ties: the others must be able to continue.
    const auto chosen = static_cast<std::size_t>(random_.between(1, static_cast<std::int64_t>(old_.size()) - 1));
    stopped_ = old_[chosen];
    stopped_->at_operation(random_.between(1, 40), [this, self = shared_from_this()] { stopped_->stop(); });
    if (old_.size() > 2) old_[chosen == 1 ? 2 : 1]->kill("killed");
    when(
        simulation_, [self = shared_from_this()] { return self->has_decided(); },
        [self = shared_from_this()] {
          self->simulation_.scheduler()->after(self->random_.below(6 * kMillisecond), [self] { self->end(); });
        });
  }

 private:
  // A newer generation has newcomers, but not the stopped process.
  bool has_decided() {
    if (!files_.have_changed(simulation_)) return false;
    for (Generation& one : accepted_after(simulation_, options_.roster, options_.established())) {
      const auto is_old = [&](const auto& member) {
        return std::ranges::any_of(old_, [&](Process* process) { return process->pid() == member.pid; });
      };
      if (!contains(one, stopped_) && !std::ranges::all_of(one.members, is_old)) return true;
    }
    return false;
  }

  void end() {
    for (Process* const process : old_) {
      if (process != stopped_) process->kill("killed");
    }
    simulation_.scheduler()->after(random_.below(3 * kSecond), [stopped = stopped_] { stopped->resume(); });
  }

  Simulation& simulation_;
  Random& random_;
  const VoidGenerationOptions options_;
  std::vector<Process*> old_;
  Process* stopped_ = nullptr;
  Files files_;
};

class NodeFaults : public std::enable_shared_from_this<NodeFaults> {
 public:
  NodeFaults(Simulation& simulation, VoidRoundOptions options)
      : simulation_(simulation), random_(simulation.random()), options_(std::move(options)) {}

  void begin() {
    const Generation first = options_.established();
    if (first.members.size() < 3) return;
    outdated_ = options_.launcher(first.members.front());
    outdated_->stop();
    const auto has_continued = [self = shared_from_this()] {
      if (!self->files_.have_changed(self->simulation_)) return false;
      const Generation established = self->options_.established();
      return established.number > 0 && established.members.size() >= 2 && !contains(established, self->outdated_);
    };
    when(simulation_, has_continued, [self = shared_from_this()] {
      self->simulation_.scheduler()->after(self->random_.below(kSecond), [self] { self->lose_another(); });
    });
  }

 private:
  void lose_another() {
    second_ = options_.established();
    other_ = options_.launcher(second_.members.at(1));
    const Host &one = outdated_->host(), &two = other_->host();
    simulation_.network().set_link(one, two, Link::drop);
    simulation_.network().set_link(two, one, Link::drop);
    options_.start_newcomer();
    simulation_.scheduler()->after(random_.between(500, 1000) * kMillisecond, [other = other_] { other->stop(); });
    when(
        simulation_, [self = shared_from_this()] { return self->has_decided(); },
        [self = shared_from_this()] {
          self->options_.newcomer()->stop();
          self->simulation_.scheduler()->after(self->random_.below(kSecond), [self] { self->end(); });
        });
  }

  bool has_decided() {
    if (!files_.have_changed(simulation_)) return false;
    Process* const newcomer = options_.newcomer();
    return std::ranges::any_of(accepted_after(simulation_, options_.roster, second_),
                               [&](const Generation& one) { return contains(one, newcomer); });
  }

  void end() {
    options_.newcomer()->kill("killed");
    for (const auto& node : second_.members) {
      Process* const process = options_.launcher(node);
      if (process != other_) process->kill("killed");
    }
    for (Process* const process : {outdated_, other_}) {
      simulation_.scheduler()->after(random_.below(2 * kSecond), [process] { process->resume(); });
    }
  }

  Simulation& simulation_;
  Random& random_;
  const VoidRoundOptions options_;
  Generation second_;
  Process* outdated_ = nullptr;
  Process* other_ = nullptr;
  Files files_;
};

}  // namespace

void schedule_void_generation(Simulation& simulation, const VoidGenerationOptions& options, Time begin) {
  const auto faults = std::make_shared<RankFaults>(simulation, options);
  simulation.scheduler()->at(begin, [faults] { faults->begin(); });
}

void schedule_void_round(Simulation& simulation, const VoidRoundOptions& options, Time begin) {
  const auto faults = std::make_shared<NodeFaults>(simulation, options);
  simulation.scheduler()->at(begin, [faults] { faults->begin(); });
}

}  // namespace lockstep::simulation
