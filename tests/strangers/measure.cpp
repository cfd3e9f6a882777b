// How much strangers slow a job down: alternates between calm and attack, and prints steps per second and the processor
// time of a step for both.
//
//   strangers_measure [rounds] [connections per second]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "strangers/attacked_job.h"

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;

LOCKSTEP_PROCESS_ROLE(attacked_rank) { return run_attacked_rank(); }

struct Rates {
  std::vector<double> steps_per_second;
  std::vector<double> microseconds_per_step;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

void measure(AttackedJob& job, Rates& rates) {
  std::this_thread::sleep_for(1s);
  const auto begin = Deadline::Clock::now();
  const auto before = job.progress();
  std::this_thread::sleep_for(4s);
  const auto after = job.progress();
  const double seconds = std::chrono::duration<double>(Deadline::Clock::now() - begin).count();
  const double steps = after.steps - before.steps;
  rates.steps_per_second.push_back(steps / seconds);
  rates.microseconds_per_step.push_back(1e6 * (after.processor_seconds - before.processor_seconds) / steps);
}

int run(int rounds, double per_second) {
  AttackedJob job(4);
  job.start();
  job.let_the_last_rank_join();
  if (!job.ranks().wait_for_line(0, "formed", in_seconds(60))) {
    fmt::print("{}\n", job.ranks().report());
    return 1;
  }
  Rates calm;
  Rates attack;
  std::size_t connections = 0;
  for (int round = 0; round < rounds; ++round) {
    measure(job, calm);
    Crowd crowd({.connections = 1'000'000, .at_once = 5'000, .per_second = per_second});
    crowd.attack(job.ports());
    measure(job, attack);
    job.most_descriptors();
    connections += crowd.stop();
  }
  const bool ended_well = job.finish();
  const auto print = [](const char* name, const Rates& rates) {
    fmt::print("{:>8}: {:8.1f} steps/s, {:8.1f} us of processor time per step\n", name, median(rates.steps_per_second),
               median(rates.microseconds_per_step));
  };
  print("calm", calm);
  print("attack", attack);
  fmt::print("{} connections; at most {} descriptors in a rank; the job {}\n", connections, job.most_descriptors(),
             ended_well ? "ended well" : "failed");
  return ended_well ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::testing

int main(int argc, char** argv) {
  if (const auto code = lockstep::testing::run_role_of_child()) return *code;
  return lockstep::testing::run(argc > 1 ? std::atoi(argv[1]) : 5, argc > 2 ? std::atof(argv[2]) : 1000);
}
