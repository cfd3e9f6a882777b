// One rank of `lockstep bench ddp`: trains as many steps as each line of its input requests.
//
//   lockstep-bench-ddp MODEL BATCH plain|BACKEND FIFOS sgd|adamw
// "plain" trains without synchronisation; BACKEND is the name of an engine for init_process_group. The optimizers are
// Lockstep's fused ones.
// FIFOS.<rank>.commands and FIFOS.<rank>.answers are FIFOs. Each line of the first is a number of steps; the answer is
//   <forward+backward ms> <with optimizer ms> <exposed communication ms> <resident MiB> <peak MiB> <loss>
// (medians over the steps; if gradients were synchronised, it has checked that all ranks have the same parameters).
// bench/peers/torch_ddp_worker.py does the same with PyTorch.
#include <lockstep/lockstep.h>
#include <sched.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include "bench/ddp/models.h"

namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double status_mib(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(field + ":", 0) == 0) return std::stod(line.substr(field.size() + 1)) / 1024;
  }
  return 0;
}

void pin(int rank, int ranks) {
  if (ranks > static_cast<int>(std::thread::hardware_concurrency())) return;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(rank, &cores);
  ::sched_setaffinity(0, sizeof(cores), &cores);
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& name, torch::nn::Module& module) {
  if (name == "adamw") {
    return std::make_unique<lockstep::optim::AdamW>(module.parameters(), torch::optim::AdamWOptions(1e-4));
  }
  return std::make_unique<lockstep::optim::SGD>(module.parameters(), torch::optim::SGDOptions(1e-3).momentum(0.9));
}

int run(char** argv) {
  torch::set_num_threads(1);
  const std::string mode = argv[3];
  const bool plain = mode == "plain";
  lockstep::ProcessGroupScope job({.backend = plain ? "lockstep" : mode});
  pin(job.rank(), job.world_size());
  lockstep::bench::Task task = lockstep::bench::make_task(argv[1]);
  const auto [input, target] = task.data(std::stoll(argv[2]), 100 + static_cast<std::uint64_t>(job.rank()));
  std::unique_ptr<lockstep::GradientSynchronizer> sync;
  if (!plain) {
    sync = std::make_unique<lockstep::GradientSynchronizer>(*task.module);
  }
  const auto optimizer = make_optimizer(argv[5], *task.module);

  const std::string fifos = argv[4] + ("." + std::to_string(job.rank()));
  std::ifstream commands(fifos + ".commands");
  std::ofstream replies(fifos + ".answers");
  for (std::string line; std::getline(commands, line);) {
    std::vector<double> both, all, exposed;
    torch::Tensor loss;
    for (int steps = std::stoi(line); steps > 0; --steps) {
      lockstep::barrier();
      const auto start = std::chrono::steady_clock::now();
      for (auto& parameter : optimizer->param_groups()[0].params()) parameter.mutable_grad() = torch::Tensor();
      if (sync) sync->before_forward(input.size(0));
      const torch::Tensor output = task.forward(input);
      if (sync) sync->after_forward({output});
      loss = task.loss(output, target);
      loss.backward();
      both.push_back(milliseconds_since(start));
      optimizer->step();
      all.push_back(milliseconds_since(start));
      exposed.push_back(sync ? 1e3 * sync->logging_data().exposed_communication_seconds : 0);
    }
    if (sync) sync->verify_in_sync();
    replies << median(both) << ' ' << median(all) << ' ' << median(exposed) << ' ' << status_mib("VmRSS") << ' '
            << status_mib("VmHWM") << ' ' << loss.item<double>() << std::endl;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::cerr << "lockstep-bench-ddp is started by `lockstep bench ddp`\n";
    return 2;
  }
  try {
    return run(argv);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
