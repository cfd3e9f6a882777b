#include "bench/driver/elastic/elastic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "bench/driver/elastic/elastic_cases.h"
#include "bench/driver/machine.h"
#include "bench/driver/report.h"
#include "bench/driver/statistics.h"

namespace lockstep::bench {
namespace {

constexpr int kMostMillisecondsLater = 250;  // so that the kill is at a random moment of a step

struct Spread {
  double median = 0, low = 0, high = 0;
};

Spread spread_of(const std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {.median = median(values), .low = *low, .high = *high};
}

std::string text_of(const std::vector<double>& values) {
  if (values.empty()) return "-";
  const Spread spread = spread_of(values);
  return fmt::format("{:.2f} ({:.2f}-{:.2f})", spread.median, spread.low, spread.high);
}

nlohmann::json json_of(const std::vector<double>& values) {
  if (values.empty()) return nullptr;
  const Spread spread = spread_of(values);
  return {{"median", spread.median}, {"low", spread.low}, {"high", spread.high}, {"rounds", values}};
}

// The rounds of one case; everything in seconds after the kill.
struct Rounds {
  std::vector<double> step, next_step;
  std::vector<double> trained;           // the replacement has committed a step
  std::vector<double> started;           // the launcher started the replacement
  std::vector<double> start_up;          // from there until it asks to join
  std::vector<double> without_start_up;  // trained - start_up

  void add(const Aftermath& aftermath) {
    step.push_back(aftermath.step_seconds);
    next_step.push_back(aftermath.next_step);
    if (!aftermath.replacement) return;
    const Aftermath::Replacement& replacement = *aftermath.replacement;
    const double own = replacement.entered - replacement.started;
    trained.push_back(replacement.trained);
    started.push_back(replacement.started);
    start_up.push_back(own);
    without_start_up.push_back(replacement.trained - own);
  }
};

class ElasticBenchmark {
 public:
  explicit ElasticBenchmark(const ElasticBenchOptions& options) : options_(options), random_(std::random_device{}()) {}

  void run() {
    prepare();
    print_heading();
    std::vector<std::size_t> order(cases_.size() + (times_commit_ ? 1 : 0));
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (int round = 0; round < options_.rounds; ++round) {
      std::shuffle(order.begin(), order.end(), random_);
      for (const std::size_t i : order) {
        if (i < cases_.size()) {
          rounds_[i].add(measure(cases_[i], round));
        } else {
          time_commit(round);
        }
      }
    }
    print_table();
    if (!options_.json_file.empty()) write_json_file(options_.json_file, rows().dump(2));
  }

 private:
  void prepare() {
    setup_.lockstep = std::filesystem::read_symlink("/proc/self/exe").string();
    setup_.worker = worker_folder() + "/lockstep-bench-elastic";
    if (::access(setup_.worker.c_str(), X_OK) != 0) {
      throw BenchError(fmt::format(
          "{} does not exist: this lockstep was built without LibTorch (Debian: apt-get install libtorch-dev)",
          setup_.worker));
    }
    if (!options_.peers.empty()) {
      setup_.python = python_with_torch();
      if (setup_.python.empty()) fmt::print("# {}\n", kTorchIsMissing);
    }
    if (options_.hosts.enabled()) {
      network_ = std::make_unique<VirtualNetwork>(options_.hosts.hosts, options_.rate);
      setup_.network = network_.get();
    }
    cases_ = elastic_cases(setup_);
    std::vector<std::string> names = {kCommitCase};
    for (const ElasticCase& one : cases_) names.push_back(one.name);
    for (const std::string& wanted : options_.cases) {
      if (std::find(names.begin(), names.end(), wanted) != names.end()) continue;
      throw BenchError(fmt::format("--case {}: with these options the cases are {}", wanted, fmt::join(names, ", ")));
    }
    std::erase_if(cases_, [this](const ElasticCase& one) { return !is_wanted(one.name); });
    times_commit_ = is_wanted(kCommitCase);
    rounds_.resize(cases_.size());
  }

  bool is_wanted(const std::string& name) const {
    return options_.cases.empty() ||
           std::find(options_.cases.begin(), options_.cases.end(), name) != options_.cases.end();
  }

  std::string job_folder(const std::string& name, int round) const {
    return fmt::format("{}/{}.{}", options_.logs.empty() ? folder_.path() : options_.logs, name, round);
  }

  Aftermath measure(const ElasticCase& one, int round) {
    const std::string folder = job_folder(one.name, round);
    TrainingJob job(one.title, folder, one.launchers(folder));
    job.wait_for_training(one.ranks,
                          one.steps_before + static_cast<int>(random_() % static_cast<unsigned>(one.steps_more + 1)));
    ::poll(nullptr, 0, static_cast<int>(random_() % kMostMillisecondsLater));
    const std::int64_t kill_time = job.kill(one.victims, one.kills_first_launcher);
    return job.wait_for_aftermath(kill_time, one.is_replaced);
  }

  void time_commit(int round) {
    const std::string folder = job_folder(kCommitCase, round);
    TrainingJob job(kCommitCase, folder, {commit_launcher(setup_, folder)});
    job.wait_for_end();
    const auto cost = commit_cost(job.log());
    if (!cost || static_cast<int>(cost->with.size()) != options_.commit_steps) job.fail("did not time all steps");
    commit_ms_.push_back(1e3 * cost->commit_seconds);
    waiting_ms_.push_back(1e3 * cost->waiting_seconds);
    commit_step_ms_.push_back(1e3 * cost->step_seconds);
    commit_share_.push_back(100 * cost->share);
    commit_ratio_.push_back(summarize_ratios(cost->with, cost->without)->median);
  }

  void print_heading() const {
    fmt::print("# elastic {}: kill -9 with {} ranks, 1 thread each, {} samples per rank, {} rounds\n", options_.model,
               options_.nproc, options_.batch, options_.rounds);
    if (options_.hosts.enabled()) {
      fmt::print("# hosts: {} with {} ranks each, links {}\n", options_.hosts.hosts, options_.hosts.ranks_each,
                 options_.rate.empty() ? "not shaped" : "of " + options_.rate);
    }
    fmt::print("# {}; load {:.1f} at the start\n", describe_machine(), load_average());
  }

  void print_table() const {
    const auto line = [](const auto&... columns) {
      fmt::print("{:<34} {:>9} {:>20} {:>20} {:>20} {:>20}\n", columns...);
    };
    if (!cases_.empty()) {
      line("# killed", "step", "next new step", "replacement trains", "its start-up", "excluding start-up");
      line("#", "(ms)", "(s)", "(s)", "(s)", "(s)");
    }
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      const Rounds& rounds = rounds_[i];
      line(cases_[i].title, fmt::format("{:.0f}", 1e3 * median(rounds.step)), text_of(rounds.next_step),
           text_of(rounds.trained), text_of(rounds.start_up), text_of(rounds.without_start_up));
    }
    if (!times_commit_) return;
    fmt::print("# commit(), 2 ranks, {} samples per rank, {} rounds of {} steps: {} ms of a step of {} ms ({} %)\n",
               options_.commit_batch, options_.rounds, options_.commit_steps, text_of(commit_ms_),
               text_of(commit_step_ms_), text_of(commit_share_));
    fmt::print("# (the last rank to arrive; with the wait of the other rank {} ms); step with / without commit(): {}\n",
               text_of(waiting_ms_), text_of(commit_ratio_));
  }

  nlohmann::json rows() const {
    nlohmann::json rows = nlohmann::json::array();
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      const Rounds& rounds = rounds_[i];
      rows.push_back({{"case", cases_[i].name},
                      {"engine", cases_[i].engine},
                      {"model", options_.model},
                      {"batch", options_.batch},
                      {"ranks", cases_[i].ranks},
                      {"step_s", json_of(rounds.step)},
                      {"next_step_s", json_of(rounds.next_step)},
                      {"replacement_trains_s", json_of(rounds.trained)},
                      {"replacement_started_s", json_of(rounds.started)},
                      {"replacement_start_up_s", json_of(rounds.start_up)},
                      {"replacement_trains_without_start_up_s", json_of(rounds.without_start_up)}});
    }
    if (times_commit_) {
      rows.push_back({{"case", kCommitCase},
                      {"engine", "lockstep"},
                      {"model", options_.model},
                      {"batch", options_.commit_batch},
                      {"ranks", 2},
                      {"step_ms", json_of(commit_step_ms_)},
                      {"commit_ms", json_of(commit_ms_)},
                      {"commit_with_waiting_ms", json_of(waiting_ms_)},
                      {"commit_percent", json_of(commit_share_)},
                      {"with_to_without", json_of(commit_ratio_)}});
    }
    return rows;
  }

  const ElasticBenchOptions& options_;
  std::mt19937 random_;
  const TemporaryFolder folder_;
  std::unique_ptr<VirtualNetwork> network_;
  ElasticSetup setup_{.options = options_, .lockstep = {}, .worker = {}};
  std::vector<ElasticCase> cases_;
  std::vector<Rounds> rounds_;  // by case
  bool times_commit_ = false;
  // By round.
  std::vector<double> commit_ms_, waiting_ms_, commit_step_ms_, commit_share_, commit_ratio_;
};

std::string check(const ElasticBenchOptions& options) {
  for (const std::string& peer : options.peers) {
    if (peer != "torch") return fmt::format("--peer {}: the only peer is torch", peer);
  }
  if (options.nproc < 2) return "--nproc must be at least 2: one rank has to survive";
  if (options.batch < 1 || options.rounds < 1 || options.commit_batch < 1 || options.commit_steps < 1) {
    return "--batch, --rounds, --commit-batch and --commit-steps must be at least 1";
  }
  if (!options.rate.empty() && !options.hosts.enabled()) return "--rate shapes links between hosts: it needs --hosts";
  if (options.hosts.enabled() && options.hosts.hosts < 2) return "--hosts must be at least 2";
  return "";
}

}  // namespace

int run_elastic_benchmark(const ElasticBenchOptions& options) {
  if (const std::string wrong = check(options); !wrong.empty()) {
    fmt::print(stderr, "lockstep bench elastic: {}\n", wrong);
    return 2;
  }
  const InterruptGuard guard;
  try {
    ElasticBenchmark(options).run();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "lockstep bench elastic: {}\n", error.what());
    return InterruptGuard::signal() != 0 ? 128 + InterruptGuard::signal() : 1;
  }
}

}  // namespace lockstep::bench
