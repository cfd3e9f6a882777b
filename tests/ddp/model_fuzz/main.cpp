// ddp_model_fuzz: random models, trained with DDP and by hand, and compared. CONTRIBUTING.md explains how to read a
// failure.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

#include "ddp/model_fuzz/generate.h"
#include "ddp/model_fuzz/print_cpp.h"
#include "ddp/model_fuzz/rank_processes.h"
#include "ddp/model_fuzz/shrink.h"

namespace lockstep::fuzz {
namespace {

constexpr const char* kUsage =
    "ddp_model_fuzz [--models N] [--seed S] [--seconds T] [--no-shrink]\n"
    "ddp_model_fuzz --one SEED [--edits N,N,...] [--no-shrink]\n"
    "  --models N    how many models; 200 if not given. Model i has seed S + i\n"
    "  --seconds T   stop after T seconds\n"
    "  --one SEED    this model alone\n"
    "  --edits ...   made smaller by these edits, as a failure prints them\n"
    "  --print       print the model as C++ and run nothing\n";

struct Arguments {
  long models = 200;
  std::uint64_t seed = 1;
  double seconds = 1e9;
  bool one = false, shrink = true, print = false;
  std::vector<int> edits;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto value = [&] {
      if (i + 1 == argc) throw std::invalid_argument(name + " needs a value");
      return std::string(argv[++i]);
    };
    if (name == "--models") {
      arguments.models = std::stol(value());
    } else if (name == "--seed") {
      arguments.seed = std::stoull(value());
    } else if (name == "--seconds") {
      arguments.seconds = std::stod(value());
    } else if (name == "--one") {
      arguments.seed = std::stoull(value());
      arguments.one = true;
      arguments.models = 1;
    } else if (name == "--edits") {
      std::istringstream list(value());
      for (std::string edit; std::getline(list, edit, ',');) arguments.edits.push_back(std::stoi(edit));
    } else if (name == "--no-shrink") {
      arguments.shrink = false;
    } else if (name == "--print") {
      arguments.print = true;
    } else {
      throw std::invalid_argument("unknown argument " + name);
    }
  }
  return arguments;
}

class Fuzzer {
 public:
  explicit Fuzzer(const Arguments& arguments) : arguments_(arguments) {}

  int run() {
    const auto begin = std::chrono::steady_clock::now();
    const auto seconds = [&begin] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    long models = 0;
    for (; models < arguments_.models && seconds() < arguments_.seconds; ++models) {
      const Case item = case_of(arguments_.seed + static_cast<std::uint64_t>(models), arguments_.edits);
      const Outcome outcome = ranks_.run(item);
      ++counts_[outcome.kind];
      if (outcome.kind != Outcome::Kind::fine) report(item, outcome);
    }
    std::string categories;
    for (const auto& [name, seeds] : categories_) {
      categories += fmt::format("{:5} {} (first seed {})\n", seeds.size(), name, seeds.front());
    }
    fmt::print("{}{} models in {:.1f} s, {} wrong, {} refused, {} hung, {} crashed, {} invalid\n", categories, models,
               seconds(), counts_[Outcome::Kind::wrong], counts_[Outcome::Kind::refused], counts_[Outcome::Kind::hung],
               counts_[Outcome::Kind::crashed], counts_[Outcome::Kind::invalid] + counts_[Outcome::Kind::collateral]);
    return counts_[Outcome::Kind::fine] == models ? 0 : 1;
  }

 private:
  void report(const Case& item, const Outcome& outcome) {
    std::vector<std::uint64_t>& seeds = categories_[fmt::format("{}: {}", name_of(outcome.kind), outcome.check)];
    seeds.push_back(item.seed);
    fmt::print("seed {} {}: {}\n  {}\n  {}\n", item.seed, name_of(outcome.kind), outcome.check, outcome.detail,
               describe(item));
    // The first ones of a kind are made smaller: the others are most likely the same.
    if (!arguments_.shrink || seeds.size() > 2) {
      std::fflush(stdout);
      return;
    }
    const auto still_fails = [&](const Case& candidate) { return ranks_.run(candidate).same_failure(outcome); };
    if (!still_fails(item)) {
      fmt::print("  It did not fail the second time: another model before it, or the timing, is part of it.\n");
    } else {
      const bool slow = outcome.kind == Outcome::Kind::hung || outcome.kind == Outcome::Kind::crashed;
      const Case smaller = shrink(item, slow ? 10 : 300, still_fails);
      fmt::print("  shrunk; {}\n{}\n", ranks_.run(smaller).detail, print_cpp(smaller));
    }
    std::fflush(stdout);
  }

  const Arguments arguments_;
  RankProcesses ranks_;
  std::map<Outcome::Kind, long> counts_;
  std::map<std::string, std::vector<std::uint64_t>> categories_;
};

}  // namespace
}  // namespace lockstep::fuzz

int main(int argc, char** argv) {
  if (const auto exit_code = lockstep::testing::run_role_of_child()) return *exit_code;
  using namespace lockstep::fuzz;
  Arguments arguments;
  try {
    arguments = parse(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n{}", error.what(), kUsage);
    return 2;
  }
  if (arguments.print) {
    const Case item = case_of(arguments.seed, arguments.edits);
    fmt::print("{}", print_cpp(item));
    return 0;
  }
  return Fuzzer(arguments).run();
}
