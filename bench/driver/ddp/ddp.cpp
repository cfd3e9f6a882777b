#include "bench/driver/ddp/ddp.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "bench/driver/ddp/ddp_ranks.h"
#include "bench/driver/machine.h"
#include "bench/driver/mpirun.h"
#include "bench/driver/report.h"
#include "bench/driver/statistics.h"

namespace lockstep::bench {
namespace {

constexpr int kFirstSteps = 3;  // not typical: buckets are rebuilt and memory is allocated

// A contestant that cannot take part, and why.
struct Missing {
  std::string name;
  std::string reason;
};

// One contestant and the measurements of its rounds, each of the slowest rank.
struct Entry {
  DdpContestant contestant;
  std::string plain;  // the contestant that does the same without synchronisation
  std::unique_ptr<DdpRanks> ranks = {};
  std::vector<double> both = {}, optimizer = {}, all = {}, exposed = {};
  double resident_mib = 0, peak_mib = 0;

  void add(const std::vector<DdpAnswer>& answers) {
    DdpAnswer worst;
    double slowest_optimizer = 0;
    for (const DdpAnswer& answer : answers) {
      worst.both_ms = std::max(worst.both_ms, answer.both_ms);
      worst.all_ms = std::max(worst.all_ms, answer.all_ms);
      worst.exposed_ms = std::max(worst.exposed_ms, answer.exposed_ms);
      slowest_optimizer = std::max(slowest_optimizer, answer.all_ms - answer.both_ms);
      resident_mib = std::max(resident_mib, answer.resident_mib);
      peak_mib = std::max(peak_mib, answer.peak_mib);
    }
    both.push_back(worst.both_ms);
    optimizer.push_back(slowest_optimizer);
    all.push_back(worst.all_ms);
    exposed.push_back(worst.exposed_ms);
  }
};

std::string ratio_text(const std::optional<RatioSummary>& ratio) {
  return ratio ? fmt::format("{:.3f} ({:.3f}-{:.3f})", ratio->median, ratio->low, ratio->high) : "-";
}

class DdpBenchmark {
 public:
  explicit DdpBenchmark(const DdpBenchOptions& options) : options_(options), session_{options, folder_, nullptr, ""} {
    if (options.hosts.enabled()) network_ = std::make_unique<VirtualNetwork>(options.hosts.hosts, options.rate);
    session_.network = network_.get();
    session_.secret = random_secret();
  }

  void run() {
    start_all();
    std::mt19937 random(std::random_device{}());
    std::vector<Entry*> order;
    for (Entry& entry : entries_) order.push_back(&entry);
    for (int round = 0; round < options_.rounds; ++round) {
      std::shuffle(order.begin(), order.end(), random);
      for (Entry* const entry : order) entry->add(entry->ranks->run(options_.steps));
    }
    print_table();
    if (!options_.json_file.empty()) write_json_file(options_.json_file, rows().dump(2));
  }

 private:
  void start_all() {
    const std::string worker = worker_folder() + "/lockstep-bench-ddp";
    if (::access(worker.c_str(), X_OK) != 0) {
      throw BenchError(fmt::format(
          "{} does not exist: this lockstep was built without LibTorch (Debian: apt-get install libtorch-dev)",
          worker));
    }
    start({{"plain", {worker}, "plain"}, "plain"});
    for (const std::string& backend : options_.backends) {
      if (const std::string reason = is_mpi(backend) ? why_no_mpirun(backend) : ""; !reason.empty()) {
        missing_.push_back({backend, reason});
      } else if (find(backend) == nullptr) {
        start({{backend, {worker}, backend, is_mpi(backend) ? backend : ""}, "plain"});
      }
    }
    if (options_.peers.empty()) return;
    const std::string python = python_with_torch();
    if (python.empty()) return missing_.push_back({"torch", kTorchIsMissing});
    const std::vector<std::string> script = {python, worker_folder() + "/torch_ddp_worker.py"};
    start({{"torch-plain", script, "plain"}, "torch-plain"});
    start({{"torch", script, "torch"}, "torch-plain"});
  }

  // An engine that does not start is left out; plain training and Lockstep must start.
  void start(Entry entry) {
    try {
      entry.ranks = std::make_unique<DdpRanks>(session_, entry.contestant, started_++);
      entry.ranks->run(kFirstSteps);
      entries_.push_back(std::move(entry));
    } catch (const BenchError& error) {
      const std::string& name = entry.contestant.name;
      if (InterruptGuard::signal() != 0 || name == "plain" || name == "lockstep") throw;
      missing_.push_back({name, fmt::format("{} is missing: it does not start here. {}", name, error.what())});
    }
  }

  const Entry* find(const std::string& name) const {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.contestant.name == name; });
    return found == entries_.end() ? nullptr : &*found;
  }
  // The contestant that all others are compared with: the first engine that started.
  const Entry& reference() const { return entries_[entries_.size() > 1 ? 1 : 0]; }

  double samples_per_second(const Entry& entry) const {
    return 1e3 * options_.batch * session_.ranks() / median(entry.all);
  }
  std::optional<RatioSummary> overhead(const Entry& entry) const {
    const Entry* const plain = find(entry.plain);
    return plain != nullptr ? summarize_ratios(entry.both, plain->both) : std::nullopt;
  }

  void print_table() const {
    fmt::print("# ddp {}, {}: {}, 1 thread each, {} samples per rank, {} rounds of {} steps\n# {}\n", options_.model,
               options_.optimizer, describe_layout(session_.ranks(), options_.hosts, options_.rate), options_.batch,
               options_.rounds, options_.steps, describe_machine());
    const auto line = [](const auto&... columns) {
      fmt::print("{:<12} {:>10} {:>22} {:>22} {:>9} {:>10} {:>22} {:>9} {:>10} {:>9} {:>9}\n", columns...);
    };
    const std::string& name = reference().contestant.name;
    line("# engine", "fwd+bwd", "time / plain", "time / " + name, "optimizer", "step", "step / " + name, "exposed",
         "samples/s", "RSS", "peak");
    line("#", "(ms)", "(low-high)", "(low-high)", "(ms)", "(ms)", "(low-high)", "(ms)", "", "(MiB)", "(MiB)");
    for (const Entry& entry : entries_) {
      line(entry.contestant.name, fmt::format("{:.2f}", median(entry.both)), ratio_text(overhead(entry)),
           ratio_text(summarize_ratios(entry.both, reference().both)), fmt::format("{:.2f}", median(entry.optimizer)),
           fmt::format("{:.2f}", median(entry.all)), ratio_text(summarize_ratios(entry.all, reference().all)),
           fmt::format("{:.2f}", median(entry.exposed)), fmt::format("{:.0f}", samples_per_second(entry)),
           fmt::format("{:.0f}", entry.resident_mib), fmt::format("{:.0f}", entry.peak_mib));
    }
    for (const Missing& missing : missing_) fmt::print("{:<12} {}\n", missing.name, missing.reason);
  }

  nlohmann::json rows() const {
    nlohmann::json rows = nlohmann::json::array();
    for (const Entry& entry : entries_) {
      const auto plain = overhead(entry);
      rows.push_back({{"engine", entry.contestant.name},
                      {"model", options_.model},
                      {"optimizer", options_.optimizer},
                      {"batch", options_.batch},
                      {"nproc", session_.ranks()},
                      {"hosts", std::max(1, options_.hosts.hosts)},
                      {"rate", options_.rate},
                      {"forward_backward_ms", median(entry.both)},
                      {"optimizer_ms", median(entry.optimizer)},
                      {"step_ms", median(entry.all)},
                      {"overhead", plain ? nlohmann::json(plain->median - 1) : nlohmann::json()},
                      {"exposed_ms", median(entry.exposed)},
                      {"samples_per_second", samples_per_second(entry)},
                      {"resident_mib", entry.resident_mib},
                      {"peak_mib", entry.peak_mib}});
      if (&entry != &reference()) continue;
      for (const Entry& other : entries_) {
        if (&other == &entry) continue;
        const RatioSummary ratio = *summarize_ratios(other.both, entry.both);
        rows.back()["ratio"][other.contestant.name] = ratio.median;
        rows.back()["ratio_spread"][other.contestant.name] = {{"low", ratio.low}, {"high", ratio.high}};
        const RatioSummary step = *summarize_ratios(other.all, entry.all);
        rows.back()["step_ratio"][other.contestant.name] = step.median;
        rows.back()["step_ratio_spread"][other.contestant.name] = {{"low", step.low}, {"high", step.high}};
      }
    }
    for (const Missing& missing : missing_) rows.push_back({{"engine", missing.name}, {"missing", missing.reason}});
    return rows;
  }

  const DdpBenchOptions& options_;
  const TemporaryFolder folder_;
  std::unique_ptr<VirtualNetwork> network_;
  DdpSession session_;
  int started_ = 0;
  std::vector<Missing> missing_;
  std::vector<Entry> entries_;  // destroyed before the network and the folder
};

}  // namespace

int run_ddp_benchmark(const DdpBenchOptions& options) {
  if (const Status status = validate_ddp(options); !status.ok()) {
    fmt::print(stderr, "lockstep bench ddp: {}\n", status.message());
    return 2;
  }
  const InterruptGuard guard;
  try {
    DdpBenchmark(options).run();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "lockstep bench ddp: {}\n", error.what());
    return InterruptGuard::signal() != 0 ? 128 + InterruptGuard::signal() : 1;
  }
}

}  // namespace lockstep::bench
