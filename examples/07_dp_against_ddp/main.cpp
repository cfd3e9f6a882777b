// Lesson 7: DataParallel (threads of one process) compared with DistributedDataParallel (several processes). The same
// training runs in one process without either, with DataParallel, and with DDP; the program prints the time per step,
// the samples per second and the memory of each.
//
//   ./07_dp_against_ddp [--replicas 2] [--batch 128] [--steps 30]
#include <lockstep/lockstep.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "common/command_line.h"
#include "common/fashion_mnist.h"
#include "common/fashion_net.h"

namespace {

// The median time of a step, in milliseconds.
template <typename Model>
double time_steps(Model& model, std::vector<torch::Tensor> parameters, std::int64_t batch, int steps,
                  std::int64_t offset) {
  static const FashionMnist data(/*train=*/true);
  torch::optim::SGD optimizer(std::move(parameters), 0.05);
  std::vector<double> times;
  for (int step = 0; step < steps + 2; ++step) {
    const std::int64_t begin = (step * batch + offset) % (60000 - batch);
    const auto start = std::chrono::steady_clock::now();
    optimizer.zero_grad();
    const auto output = model(data.images().slice(0, begin, begin + batch));
    torch::cross_entropy_loss(output, data.labels().slice(0, begin, begin + batch)).backward();
    optimizer.step();
    if (step >= 2)
      times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

double peak_mib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

void report(const char* what, int replicas, double ms, std::int64_t batch, double mib, const char* each) {
  std::printf("%-28s %2d  %8.1f ms/step  %8.0f samples/s  %7.0f MiB %s\n", what, replicas, ms,
              1e3 * static_cast<double>(batch) / ms, mib, each);
  std::fflush(stdout);
}

}  // namespace

// Each variant runs in its own processes, so that its memory is not counted for another.
int main(int argc, char** argv) {
  const CommandLine options(argc, argv, {{"--replicas", "2"}, {"--batch", "128"}, {"--steps", "30"}});
  const int replicas = options.integer("--replicas"), steps = options.integer("--steps");
  const std::int64_t batch = options.integer("--batch");
  try {
    lockstep::spawn(1, [&](int) {
      torch::set_num_threads(1);
      FashionNet model;
      const double ms = time_steps(model, model->parameters(), batch, steps, 0);
      report("one process", 1, ms, batch, peak_mib(), "");
    });
    lockstep::spawn(1, [&](int) {
      torch::set_num_threads(1);
      FashionNet model;
      lockstep::DataParallel dp(model, {.replicas = replicas});
      const double ms = time_steps(dp, model->parameters(), batch, steps, 0);
      report("DataParallel", replicas, ms, batch, peak_mib(), "");
    });
    lockstep::spawn(replicas, [&](int rank) {
      torch::set_num_threads(1);
      lockstep::ProcessGroupScope job;
      FashionNet model;
      lockstep::DistributedDataParallel ddp(model);
      const double ms = time_steps(ddp, model->parameters(), batch / replicas, steps, rank * batch / replicas);
      if (rank == 0) report("DistributedDataParallel", replicas, ms, batch / replicas * replicas, peak_mib(), "each");
    });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
