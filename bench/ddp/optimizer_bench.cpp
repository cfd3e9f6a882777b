// lockstep-bench-optimizer [--ranks 1] [--threads 1] [--rounds 15]: the time of one AdamW step on the MLP of 18.9 M
// parameters: torch::optim::AdamW, lockstep::optim::AdamW without and with clipping, and the limit, which is one pass
// over the same memory. All are measured in each round, on all ranks at the same time; ranks are processes without
// communication, pinned to a core each while there are enough.
//
// Prints for each: the median time, the memory traffic if gradient, parameter and averages are read once and all but
// the gradient written once, and the median over the rounds of the ratio to the limit.
#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bench/limits/update_limit.h"
#include "lockstep/ddp/fused_optimizers.h"

namespace {

struct Settings {
  int ranks = 1;
  int threads = 1;
  int rounds = 15;
};

// Where ranks wait for each other: in memory that all have.
class Meeting {
 public:
  explicit Meeting(int ranks) {
    void* const memory =
        mmap(nullptr, sizeof(pthread_barrier_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    barrier_ = static_cast<pthread_barrier_t*>(memory);
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(barrier_, &attributes, static_cast<unsigned>(ranks));
  }
  void wait() { pthread_barrier_wait(barrier_); }

 private:
  pthread_barrier_t* barrier_ = nullptr;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Contender {
  std::string name;
  std::function<void()> step;
  std::vector<double> milliseconds = {};
};

std::vector<at::Tensor> mlp_parameters() {
  std::vector<at::Tensor> parameters;
  const std::vector<std::int64_t> widths = {1024, 2048, 2048, 2048, 2048, 2048, 10};
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    parameters.push_back(torch::randn({widths[i + 1], widths[i]}).mul_(0.02).requires_grad_());
    parameters.push_back(torch::zeros({widths[i + 1]}).requires_grad_());
  }
  for (at::Tensor& parameter : parameters) parameter.mutable_grad() = torch::randn_like(parameter).mul_(1e-3);
  return parameters;
}

// One pass over each contender's own memory, so that all are as cold as the others.
struct Limit {
  Limit() {
    for (const at::Tensor& parameter : mlp_parameters()) {
      tensors.push_back(
          {parameter.grad(), parameter.detach(), torch::zeros_like(parameter), torch::zeros_like(parameter)});
    }
  }
  void pass(int threads) {
    at::parallel_for(0, threads, 1, [&](std::int64_t first, std::int64_t last) {
      for (auto& t : tensors) {
        const std::int64_t count = t[0].numel(), begin = count * first / threads, end = count * last / threads;
        lockstep::bench::touch_as_adamw(t[0].data_ptr<float>() + begin, t[1].data_ptr<float>() + begin,
                                        t[2].data_ptr<float>() + begin, t[3].data_ptr<float>() + begin,
                                        static_cast<std::size_t>(end - begin));
      }
    });
  }
  std::vector<std::array<at::Tensor, 4>> tensors;
};

void report(std::vector<Contender>& contenders, std::size_t limit, double bytes) {
  fmt::print("{:<34} {:>9} {:>9} {:>9}\n", "", "ms", "GB/s", "x limit");
  for (const Contender& contender : contenders) {
    std::vector<double> ratios;
    for (std::size_t round = 0; round < contender.milliseconds.size(); ++round) {
      ratios.push_back(contender.milliseconds[round] / contenders[limit].milliseconds[round]);
    }
    const double ms = median(contender.milliseconds);
    fmt::print("{:<34} {:>9.2f} {:>9.1f} {:>9.2f}\n", contender.name, ms, bytes / ms / 1e6, median(ratios));
  }
}

void run_rank(int rank, const Settings& settings, Meeting& meeting) {
  if (settings.ranks > 1 &&
      settings.ranks * settings.threads <= static_cast<int>(std::thread::hardware_concurrency())) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    for (int i = 0; i < settings.threads; ++i) CPU_SET(static_cast<std::size_t>(rank * settings.threads + i), &cores);
    sched_setaffinity(0, sizeof(cores), &cores);
  }
  at::set_num_threads(settings.threads);
  at::globalContext().setFlushDenormal(false);
  const auto options = torch::optim::AdamWOptions(1e-3);
  const auto of_torch = mlp_parameters(), of_fused = mlp_parameters(), of_clipped = mlp_parameters();
  torch::optim::AdamW plain(of_torch, options);
  lockstep::optim::AdamW fused(of_fused, options), clipped(of_clipped, options);
  clipped.step_options().max_norm = 1;
  Limit limit;
  std::vector<Contender> contenders = {{"one pass over the memory (limit)", [&] { limit.pass(settings.threads); }},
                                       {"torch::optim::AdamW", [&] { plain.step(); }},
                                       {"lockstep::optim::AdamW", [&] { fused.step(); }},
                                       {"lockstep::optim::AdamW, clipping", [&] { clipped.step(); }}};
  for (int round = -2; round < settings.rounds; ++round) {  // the first two allocate
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      Contender& contender = contenders[(i + static_cast<std::size_t>(round + 2)) % contenders.size()];
      meeting.wait();
      const auto start = std::chrono::steady_clock::now();
      contender.step();
      const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
      meeting.wait();
      if (round >= 0) contender.milliseconds.push_back(took.count());
    }
  }
  if (rank != 0) return;
  double elements = 0;
  for (const at::Tensor& parameter : of_torch) elements += static_cast<double>(parameter.numel());
  fmt::print("{:.1f} M parameters, f32; {} rank(s) at the same time, {} thread(s) each; rank 0, medians of {} rounds\n",
             elements / 1e6, settings.ranks, settings.threads, settings.rounds);
  report(contenders, 0, 7 * 4 * elements);
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    int* const value = name == "--ranks"     ? &settings.ranks
                       : name == "--threads" ? &settings.threads
                       : name == "--rounds"  ? &settings.rounds
                                             : nullptr;
    if (value == nullptr || (*value = std::atoi(argv[i + 1])) < 1) {
      fmt::print(stderr, "usage: {} [--ranks 1] [--threads 1] [--rounds 15]\n", argv[0]);
      return 2;
    }
  }
  Meeting meeting(settings.ranks);
  std::vector<pid_t> others;
  for (int rank = 1; rank < settings.ranks; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      run_rank(rank, settings, meeting);
      return 0;
    }
    others.push_back(pid);
  }
  run_rank(0, settings, meeting);
  for (pid_t other : others) waitpid(other, nullptr, 0);
  return 0;
}
