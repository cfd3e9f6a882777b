// Runs simulated histories and prints those that break an invariant.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/log.h"
#include "simulation/node_history.h"

using namespace lockstep::simulation;

namespace {

// Processes that are killed leave their memory behind, so histories run in batches, each in a process of its own.
constexpr std::uint64_t kBatch = 50;

using RunHistory = Outcome (*)(std::uint64_t seed, const HistoryOptions& options);

int run_batch(RunHistory run, const std::vector<std::uint64_t>& seeds, const HistoryOptions& options, bool twice) {
  int broken = 0;
  for (const std::uint64_t seed : seeds) {
    Outcome outcome = run(seed, options);
    if (twice && outcome != run(seed, options)) outcome.violation = "the same seed made two different histories";
    if (outcome.violation.empty()) continue;
    ++broken;
    fmt::print("seed {}: {}\n", seed, outcome.violation);
  }
  std::fflush(stdout);
  return broken;
}

// Those of the lines that begin with `kind`; "#" begins a comment.
std::vector<std::uint64_t> read_seeds(const std::string& path, const std::string& kind) {
  std::vector<std::uint64_t> seeds;
  std::ifstream file(path);
  for (std::string line, word; std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::uint64_t seed = 0;
    if (words >> word >> seed && word == kind) seeds.push_back(seed);
  }
  return seeds;
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
  std::string seeds_file;
  bool without_rejects = false, transcript = false, nodes = false, twice = false;
  app.add_option("--first", first, "the first seed")->capture_default_str();
  app.add_option("--count", count, "how many seeds")->capture_default_str();
  app.add_option("--seeds", seeds_file, "run the seeds of this file instead (regression_seeds.txt)")
      ->check(CLI::ExistingFile);
  app.add_flag("--transcript", transcript, "run only the first seed, with a transcript on stderr");
  app.add_flag("--twice", twice, "run each seed twice, and compare the two histories");
  app.add_flag("--without-rejects", without_rejects, "links drop packets, but never answer with RST");
  app.add_flag("--one-endpoint", options.one_endpoint,
               "with --nodes: launchers are given the address of the first host only, and not those of all hosts");
  app.add_flag("--nodes", nodes, "the launchers of a job that restarts, instead of the ranks of an elastic one");
  CLI11_PARSE(app, argc, argv);
  options.rejects = !without_rejects;
  const RunHistory run = nodes ? run_node_history : run_history;
  if (transcript) return run_one(run, first, options);
  const auto began = std::chrono::steady_clock::now();
  const char* const kind = !nodes ? "ranks" : options.one_endpoint ? "endpoint" : "nodes";
  const std::vector<std::uint64_t> chosen = read_seeds(seeds_file, kind);
  if (!seeds_file.empty()) count = chosen.size();
  const auto seed_at = [&](std::uint64_t index) { return seeds_file.empty() ? first + index : chosen.at(index); };
  int broken = 0;
  for (std::uint64_t begin = 0; begin < count; begin += kBatch) {
    std::vector<std::uint64_t> batch;
    for (std::uint64_t i = begin; i < std::min(begin + kBatch, count); ++i) batch.push_back(seed_at(i));
    const pid_t child = ::fork();
    if (child == 0) std::_Exit(std::min(run_batch(run, batch, options, twice), 99));
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!WIFEXITED(status)) {
      fmt::print("seeds {} to {}: the simulation ended with signal {}\n", batch.front(), batch.back(),
                 WTERMSIG(status));
      broken += 1;
    } else {
      broken += WEXITSTATUS(status);
    }
    std::fflush(stdout);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  fmt::print("{} histories, {} broken, {:.0f} per second\n", count, broken, static_cast<double>(count) / took.count());
  return broken == 0 && count > 0 ? 0 : 1;
}
