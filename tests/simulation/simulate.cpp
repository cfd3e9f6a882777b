// Runs simulated histories and prints those that break an invariant.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "base/log.h"
#include "simulation/node_history.h"

using namespace lockstep::simulation;

namespace {

// Processes that are killed leave their memory behind, so histories run in batches, each in a process of its own.
constexpr std::uint64_t kBatch = 50;

using RunHistory = Outcome (*)(std::uint64_t seed, const HistoryOptions& options);

int run_batch(RunHistory run, std::uint64_t first, std::uint64_t count, const HistoryOptions& options) {
  int broken = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Outcome outcome = run(seed, options);
    if (outcome.violation.empty()) continue;
    ++broken;
    fmt::print("seed {}: {}\n", seed, outcome.violation);
  }
  std::fflush(stdout);
  return broken;
}

int run_one(RunHistory run, std::uint64_t seed, HistoryOptions options) {
  options.verbose = true;
  (void)lockstep::log_enabled(lockstep::LogLevel::info);  // reads LOCKSTEP_LOG, which simulated processes do not have
  const Outcome outcome = run(seed, options);
  fmt::print("{} steps in {:.1f} s, {} switches. {}\n", outcome.steps, outcome.virtual_seconds, outcome.switches,
             outcome.violation.empty() ? "All invariants hold." : outcome.violation);
  return outcome.violation.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Runs simulated histories of an elastic job and prints those that break an invariant.", "simulate");
  std::uint64_t first = 1, count = 1000;
  HistoryOptions options;
  bool without_rejects = false, transcript = false, nodes = false;
  app.add_option("--first", first, "the first seed")->capture_default_str();
  app.add_option("--count", count, "how many seeds")->capture_default_str();
  app.add_flag("--transcript", transcript, "run only the first seed, with a transcript on stderr");
  app.add_flag("--without-rejects", without_rejects, "links drop packets, but never answer with RST");
  app.add_flag("--nodes", nodes, "the launchers of a job that restarts, instead of the ranks of an elastic one");
  CLI11_PARSE(app, argc, argv);
  options.rejects = !without_rejects;
  const RunHistory run = nodes ? run_node_history : run_history;
  if (transcript) return run_one(run, first, options);
  const auto began = std::chrono::steady_clock::now();
  int broken = 0;
  for (std::uint64_t seed = first; seed < first + count; seed += kBatch) {
    const std::uint64_t size = std::min(kBatch, first + count - seed);
    const pid_t child = ::fork();
    if (child == 0) std::_Exit(std::min(run_batch(run, seed, size, options), 99));
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!WIFEXITED(status)) {
      fmt::print("seeds {} to {}: the simulation ended with signal {}\n", seed, seed + size - 1, WTERMSIG(status));
      broken += 1;
    } else {
      broken += WEXITSTATUS(status);
    }
    std::fflush(stdout);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  fmt::print("{} histories, {} broken, {:.0f} per second\n", count, broken, static_cast<double>(count) / took.count());
  return broken == 0 ? 0 : 1;
}
