#include "bench/driver/ddp.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "base/socket.h"
#include "bench/driver/machine.h"
#include "bench/driver/process.h"
#include "bench/driver/report.h"
#include "bench/driver/statistics.h"
#include "lockstep/base/deadline.h"

namespace lockstep::bench {
namespace {

constexpr auto kAnswerTimeout = std::chrono::minutes(5);

// What a rank answers; see bench/ddp/ddp_worker.cpp.
struct Answer {
  double both_ms = 0, all_ms = 0, exposed_ms = 0, resident_mib = 0, peak_mib = 0, loss = 0;
};

// The ranks of one contestant. They sleep between commands.
class Contestant {
 public:
  Contestant(std::string name, const std::vector<std::string>& program, const DdpBenchOptions& options,
             const std::string& mode, const TemporaryFolder& folder)
      : name_(std::move(name)), output_file_(fmt::format("{}/{}.out", folder.path(), name_)) {
    // Handed to rank 0, so that nobody takes the port in between. Python's rank 0 opens it by itself.
    UniqueFd listener = value_or_throw(listen_on(value_or_throw(resolve("127.0.0.1", 0)).front()));
    const auto port = value_or_throw(local_address(listener.get())).port();
    listener.reset();
    for (int rank = 0; rank < options.nproc; ++rank) {
      const std::string in = fmt::format("{}/{}.{}.in", folder.path(), name_, rank), out = in + ".answers";
      if (::mkfifo(in.c_str(), 0600) != 0 || ::mkfifo(out.c_str(), 0600) != 0) {
        throw BenchError(fmt::format("cannot make a FIFO in {}: {}", folder.path(), std::strerror(errno)));
      }
      std::vector<std::string> command = program;
      command.insert(command.end(), {options.model, std::to_string(options.batch), mode, in, out});
      children_.emplace_back(
          command,
          std::vector<std::string>{fmt::format("RANK={}", rank), fmt::format("LOCAL_RANK={}", rank),
                                   fmt::format("WORLD_SIZE={}", options.nproc),
                                   fmt::format("LOCAL_WORLD_SIZE={}", options.nproc), "MASTER_ADDR=127.0.0.1",
                                   fmt::format("MASTER_PORT={}", port), "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1",
                                   "PYTHONDONTWRITEBYTECODE=1"},
          output_file_);
      // Both ends, so that opening does not wait for the other side.
      inputs_.emplace_back(::open(in.c_str(), O_RDWR | O_CLOEXEC));
      answers_.emplace_back(::open(out.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    }
  }

  std::vector<Answer> run(int steps) {
    const std::string line = fmt::format("{}\n", steps);
    for (const UniqueFd& input : inputs_) {
      if (::write(input.get(), line.data(), line.size()) < 0) fail("cannot be told to start");
    }
    std::vector<Answer> result;
    for (std::size_t rank = 0; rank < answers_.size(); ++rank) result.push_back(answer_of(rank));
    return result;
  }
  const std::string& name() const { return name_; }

 private:
  Answer answer_of(std::size_t rank) {
    const Deadline deadline = Deadline::after(kAnswerTimeout);
    std::string text;
    while (text.empty() || text.back() != '\n') {
      check_interrupted();
      std::array<char, 512> block;
      const ssize_t got = ::read(answers_[rank].get(), block.data(), block.size());
      if (got > 0) {
        text.append(block.data(), static_cast<std::size_t>(got));
      } else if (children_[rank].ended()) {
        fail(fmt::format("rank {} has ended", rank));
      } else if (deadline.expired()) {
        fail(fmt::format("rank {} does not answer", rank));
      } else {
        (void)wait_ready(answers_[rank].get(), POLLIN, Deadline::after(std::chrono::milliseconds(200)));
      }
    }
    Answer answer;
    std::istringstream(text) >> answer.both_ms >> answer.all_ms >> answer.exposed_ms >> answer.resident_mib >>
        answer.peak_mib >> answer.loss;
    return answer;
  }
  [[noreturn]] void fail(const std::string& what) const {
    std::ifstream file(output_file_);
    std::stringstream said;
    said << file.rdbuf();
    throw BenchError(fmt::format("{}: {}. It said:\n{}", name_, what, said.str()));
  }

  std::string name_;
  std::string output_file_;
  std::vector<ChildProcess> children_;
  std::vector<UniqueFd> inputs_, answers_;
};

// One contestant's rounds: the slowest rank counts.
struct Rounds {
  std::vector<double> both, all, exposed;
  double resident_mib = 0, peak_mib = 0;

  void add(const std::vector<Answer>& answers) {
    Answer worst;
    for (const Answer& answer : answers) {
      worst.both_ms = std::max(worst.both_ms, answer.both_ms);
      worst.all_ms = std::max(worst.all_ms, answer.all_ms);
      worst.exposed_ms = std::max(worst.exposed_ms, answer.exposed_ms);
      resident_mib = std::max(resident_mib, answer.resident_mib);
      peak_mib = std::max(peak_mib, answer.peak_mib);
    }
    both.push_back(worst.both_ms);
    all.push_back(worst.all_ms);
    exposed.push_back(worst.exposed_ms);
  }
};

std::string ratio_text(const std::optional<RatioSummary>& ratio) {
  return ratio ? fmt::format("{:.3f} ({:.3f}-{:.3f})", ratio->median, ratio->low, ratio->high) : "-";
}

void print_row(const std::string& name, const Rounds& mine, const Rounds& plain, const Rounds* torch,
               const DdpBenchOptions& options) {
  const double all = median(mine.all);
  fmt::print("{:<12} {:>10.2f} {:>22} {:>10.2f} {:>9.2f} {:>10.0f} {:>9.0f} {:>9.0f} {:>22}\n", name, median(mine.both),
             ratio_text(summarize_ratios(mine.both, plain.both)), all, median(mine.exposed),
             1e3 * options.batch * options.nproc / all, mine.resident_mib, mine.peak_mib,
             torch != nullptr ? ratio_text(summarize_ratios(torch->both, mine.both)) : "-");
}

nlohmann::json row(const std::string& name, const Rounds& mine, const Rounds& plain, const Rounds* torch,
                   const DdpBenchOptions& options) {
  nlohmann::json out = {{"engine", name},
                        {"model", options.model},
                        {"batch", options.batch},
                        {"nproc", options.nproc},
                        {"forward_backward_ms", median(mine.both)},
                        {"step_ms", median(mine.all)},
                        {"overhead", summarize_ratios(mine.both, plain.both)->median - 1},
                        {"exposed_ms", median(mine.exposed)},
                        {"samples_per_second", 1e3 * options.batch * options.nproc / median(mine.all)},
                        {"resident_mib", mine.resident_mib},
                        {"peak_mib", mine.peak_mib}};
  if (torch != nullptr) out["ratio"] = {{"torch", summarize_ratios(torch->both, mine.both)->median}};
  return out;
}

std::string check(const DdpBenchOptions& options) {
  if (options.model != "mlp" && options.model != "cnn" && options.model != "gpt") {
    return fmt::format("--model {}: there are mlp, cnn and gpt", options.model);
  }
  for (const std::string& peer : options.peers) {
    if (peer != "torch") return fmt::format("--peer {}: the only one is torch", peer);
  }
  if (options.batch < 1 || options.nproc < 1 || options.rounds < 1 || options.steps < 1) {
    return "--batch, --nproc, --rounds and --steps must be at least 1";
  }
  return "";
}

void measure(const DdpBenchOptions& options) {
  const std::string worker = worker_folder() + "/lockstep-bench-ddp";
  if (::access(worker.c_str(), X_OK) != 0) {
    throw BenchError(fmt::format(
        "{} is not there: this lockstep was built without LibTorch (Debian: apt-get install libtorch-dev)", worker));
  }
  const std::string python = options.peers.empty() ? "" : python_with_torch();
  const bool with_torch = !python.empty();
  if (!options.peers.empty() && !with_torch) {
    fmt::print("# {}\n", kTorchIsMissing);
  }
  const TemporaryFolder folder;
  std::vector<std::unique_ptr<Contestant>> contestants;
  contestants.push_back(std::make_unique<Contestant>("plain", std::vector{worker}, options, "plain", folder));
  contestants.push_back(std::make_unique<Contestant>("lockstep", std::vector{worker}, options, "lockstep", folder));
  if (with_torch) {
    const std::vector<std::string> script = {python, worker_folder() + "/torch_ddp_worker.py"};
    contestants.push_back(std::make_unique<Contestant>("torch-plain", script, options, "plain", folder));
    contestants.push_back(std::make_unique<Contestant>("torch", script, options, "torch", folder));
  }
  std::vector<Rounds> rounds(contestants.size());
  for (auto& contestant : contestants)
    contestant->run(3);  // the first steps differ: buckets are rebuilt, memory is made
  std::vector<std::size_t> order(contestants.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < options.rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (std::size_t i : order) rounds[i].add(contestants[i]->run(options.steps));
  }

  fmt::print("# ddp {}: {} ranks, 1 thread each, {} samples per rank, {} rounds of {} steps\n# {}\n", options.model,
             options.nproc, options.batch, options.rounds, options.steps, describe_machine());
  fmt::print("{:<12} {:>10} {:>22} {:>10} {:>9} {:>10} {:>9} {:>9} {:>22}\n", "# engine", "fwd+bwd", "x plain", "step",
             "exposed", "samples/s", "RSS", "peak", "x torch");
  fmt::print("{:<12} {:>10} {:>22} {:>10} {:>9} {:>10} {:>9} {:>9} {:>22}\n", "#", "(ms)", "(low-high)", "(ms)", "(ms)",
             "", "(MiB)", "(MiB)", "(low-high)");
  nlohmann::json rows = nlohmann::json::array();
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    const Rounds& plain = rounds[i < 2 ? 0 : 2];
    const Rounds* torch = with_torch && i == 1 ? &rounds[3] : nullptr;
    print_row(contestants[i]->name(), rounds[i], plain, torch, options);
    rows.push_back(row(contestants[i]->name(), rounds[i], plain, torch, options));
  }
  if (!options.json_file.empty()) write_json_file(options.json_file, rows.dump(2));
}

}  // namespace

int run_ddp_benchmark(const DdpBenchOptions& options) {
  if (const std::string wrong = check(options); !wrong.empty()) {
    fmt::print(stderr, "lockstep bench ddp: {}\n", wrong);
    return 2;
  }
  const InterruptGuard guard;
  try {
    measure(options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "lockstep bench ddp: {}\n", error.what());
    return InterruptGuard::signal() != 0 ? 128 + InterruptGuard::signal() : 1;
  }
}

}  // namespace lockstep::bench
