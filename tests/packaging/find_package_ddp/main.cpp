// A user's first training program, with the installed library.
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>

// Started by an mpirun: finds the plug-in for MPI where it was installed.
static int sum_over_mpi() {
  lockstep::ProcessGroupScope job;
  torch::Tensor sum = torch::ones({1});
  lockstep::all_reduce(sum);
  std::printf("sum %.0f on backend %s\n", sum.item<double>(), lockstep::get_backend().c_str());
  return sum.item<double>() == job.world_size() ? 0 : 1;
}

int main() {
  if (std::getenv("LOCKSTEP_BACKEND") != nullptr) return sum_over_mpi();
  auto group = lockstep::make_process_group(lockstep::Communicator::create_threads(1).front());
  torch::nn::Linear model(4, 2);
  lockstep::DistributedDataParallel ddp(model, {.process_group = group});
  ddp(torch::ones({3, 4})).sum().backward();
  if (model->weight.grad()[0][0].item<float>() != 3) return 1;
  try {
    lockstep::broadcast(model->weight, /*src=*/7, {.group = group});
  } catch (const lockstep::Error& error) {
    std::printf("lockstep %s refused root 7: %s\n", LOCKSTEP_VERSION, error.what());
    return 0;
  }
  return 1;
}
