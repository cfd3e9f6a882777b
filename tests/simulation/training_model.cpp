#include "simulation/training_model.h"

#include <fmt/format.h>

#include <thread>

#include "base/log.h"
#include "simulation/process.h"

namespace lockstep::simulation {
namespace {

using elastic::Participant;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  Random random(a ^ (b * 0x9E3779B97F4A7C15ULL));
  return random.next();
}

struct State {
  std::int64_t step = -1;  // -1: none of it counts
  std::uint64_t hash = 0;
};

template <typename T>
std::vector<T> gather(Communicator& group, const T& mine) {
  std::vector<T> all(static_cast<std::size_t>(group.size()));
  group.all_gather(ConstBuffer{&mine, sizeof(T), DType::i8}, Buffer{all.data(), all.size() * sizeof(T), DType::i8});
  return all;
}

// True: the job is done.
bool run_generation(Participant& participant, const Participant::RankStart& start, State& state, std::int64_t steps,
                    Lineage& lineage) {
  Simulation& simulation = Simulation::current();
  Communicator& group = *start.group;
  lineage.established(start.generation, start.members);
  const std::string who = fmt::format("{} in generation {}", Simulation::process()->name(), start.generation);
  try {
    if (start.transfer) state = gather(group, state).at(static_cast<std::size_t>(start.source));
    lineage.holds(*Simulation::process(), state.step);
    while (state.step < steps) {
      std::this_thread::sleep_for(std::chrono::microseconds(simulation.random().between(20'000, 150'000)));
      State next{.step = state.step + 1, .hash = state.hash};
      for (const std::uint64_t gradient : gather(group, simulation.random().next()))
        next.hash = mix(next.hash, gradient);
      state = next;
      lineage.holds(*Simulation::process(), state.step);
      const std::uint8_t wish = group.rank() == 0 && participant.newcomers_wait() ? 1 : 0;
      const std::vector<std::uint8_t> wishes = gather(group, wish);
      lineage.committed(state.step, state.hash, who);
      if (wishes.front() != 0) return false;
    }
    group.barrier();
    participant.finish();
    return true;
  } catch (const Error& error) {
    if (group.health().ok()) throw;
    log_warn("generation {} is over: {}", start.generation, error.what());
    return false;
  }
}

}  // namespace

void Lineage::committed(std::int64_t step, std::uint64_t state, const std::string& who) {
  const auto when = [&] {
    return fmt::format("{} at {:.6f}", who, static_cast<double>(Simulation::current().now()) / kSecond);
  };
  const auto found = states_.find(step);
  if (found == states_.end()) {
    states_.emplace(step, Step{.state = state, .first = when()});
  } else if (found->second.state != state) {
    report(fmt::format("two lineages: step {} was committed by {}, and with another state by {}", step,
                       found->second.first, when()));
  }
}

bool Lineage::has_last_step(const Process& process) const {
  const auto held = held_.find(&process);
  return held != held_.end() && held->second >= steps();
}

void train(elastic::ParticipantOptions options, std::int64_t steps, Lineage& lineage) {
  Participant participant(elastic::ParticipantOptions::from_environment(std::move(options)));
  State state{.step = participant.is_newcomer() ? -1 : 0};
  while (true) {
    const std::optional<Participant::RankStart> start = participant.next_generation(state.step);
    if (!start) return;
    if (!start->has_state) state.step = -1;
    lineage.holds(*Simulation::process(), state.step);
    if (run_generation(participant, *start, state, steps, lineage)) {
      lineage.finished = true;
      return;
    }
  }
}

}  // namespace lockstep::simulation
