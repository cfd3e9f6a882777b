// What recording costs: an 8-byte all-reduce of two processes of this host, in rounds that alternate between recording
// and not recording. Prints the time of the fastest tenth of the rounds, which other programs of the machine disturb
// least. Usage: lockstep-bench-record [rounds] [operations per round]
#include <fmt/format.h>
#include <lockstep/engine.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "record/operation_log.h"

namespace {

// What a tenth of the rounds stay below.
double fastest_tenth(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 10];
}

// The recording of one operation by itself, in such a series. Hardly disturbed by other programs of the machine.
void run_alone(int rounds, int operations) {
  lockstep::record::OperationLog log("alone", "alone", 0, 1);
  std::vector<double> times;
  std::uint64_t sequence = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < operations; ++i) {
      log.begin({.sequence = ++sequence, .bytes = 8});
      log.end(true, false);
    }
    const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - begin;
    times.push_back(elapsed.count() / operations);
  }
  fmt::print("recording an operation, by itself: {:.1f} ns\n", fastest_tenth(times));
}

int run(int rank, const std::string& store, int rounds, int operations) {
  auto group = lockstep::Communicator::create(
      {.init_method = "file://" + store, .rank = rank, .world_size = 2, .group = {.name = "bench"}});
  double value = 1;
  std::vector<double> times[2];
  for (int round = -2; round < 2 * rounds; ++round) {
    const bool records = round % 2 != 0;
    lockstep::record::operations_are_recorded.store(records);
    group->barrier();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < operations; ++i) group->all_reduce(lockstep::Buffer(std::span(&value, 1)));
    const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - begin;
    value = 1;
    if (round >= 0) times[records ? 1 : 0].push_back(elapsed.count() / operations);
  }
  if (rank != 0) return 0;
  const double without = fastest_tenth(times[0]);
  const double with = fastest_tenth(times[1]);
  fmt::print(
      "8-byte all-reduce, 2 processes: {:.1f} ns without, {:.1f} ns with the recorder ({:+.1f} ns, {:+.1f} %), "
      "{} rounds of {} each\n",
      without, with, with - without, 100 * (with - without) / without, rounds, operations);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 1001;
  const int operations = argc > 2 ? std::atoi(argv[2]) : 2'000;
  char folder[] = "/tmp/lockstep-bench-record.XXXXXX";
  if (::mkdtemp(folder) == nullptr) return 1;
  const std::string store = std::string(folder) + "/store";
  const pid_t peer = ::fork();
  if (peer == 0) ::_exit(run(1, store, rounds, operations));
  const int code = run(0, store, rounds, operations);
  ::waitpid(peer, nullptr, 0);
  run_alone(rounds, operations);
  ::unlink(store.c_str());
  ::rmdir(folder);
  return code;
}
