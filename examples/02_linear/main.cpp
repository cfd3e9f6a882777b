// Lesson 2: DDP in its shortest form. Compared with training in one process, three things are new: the process group
// (ProcessGroupScope), the model wrapped in DistributedDataParallel, and different data on each rank.
//
//   ./02_linear            starts two processes by itself
//   ./02_linear --nproc 4
//   lockstep run --nproc-per-node 4 ./02_linear
// If a launcher (lockstep run, torchrun, srun, mpirun) started it, the program is one rank of that job.
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>

#include "common/command_line.h"

namespace {

void train() {
  lockstep::ProcessGroupScope job;  // RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
  torch::manual_seed(job.rank());   // every rank starts with different parameters ...

  torch::nn::Linear model(10, 10);
  lockstep::DistributedDataParallel ddp(model);  // ... and now every replica equals that of rank 0
  torch::optim::SGD optimizer(ddp->parameters(), 0.01);

  const torch::Tensor truth = torch::eye(10) * 2;  // the function to learn
  for (int step = 0; step < 200; ++step) {
    const torch::Tensor input = torch::randn({20, 10});  // each rank has its own data
    optimizer.zero_grad();
    const torch::Tensor loss = torch::mse_loss(ddp(input), input.mm(truth));
    loss.backward();  // averages each gradient over all ranks as soon as it is ready
    optimizer.step();

    torch::Tensor mean = loss.detach().clone();
    lockstep::all_reduce(mean, {.op = lockstep::ReduceOp::avg});
    if (job.rank() == 0 && step % 50 == 49) std::printf("step %3d  loss %.4f\n", step + 1, mean.item<double>());
  }

  ddp.verify_in_sync();  // throws if a parameter differs on any rank
  if (job.rank() == 0) std::printf("%d replicas, bit-identical\n", job.world_size());
}

}  // namespace

int main(int argc, char** argv) {
  const CommandLine options(argc, argv, {{"--nproc", "2"}});
  return run_ranks(options.integer("--nproc"), train);
}
