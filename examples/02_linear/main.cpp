// The linear model: DDP in its shortest form.
//
//   ./02_linear            starts two processes of its own
//   ./02_linear --nproc 4
// Under a launcher (lockstep run, torchrun, srun, mpirun) it is one rank.
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>

#include "common/command_line.h"

namespace {

void train() {
  lockstep::ProcessGroupScope job;  // RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
  torch::manual_seed(job.rank());   // every rank starts elsewhere ...

  torch::nn::Linear model(10, 10);
  lockstep::DistributedDataParallel ddp(model);  // ... and now every replica equals rank 0's
  torch::optim::SGD optimizer(ddp->parameters(), 0.01);

  const torch::Tensor truth = torch::eye(10) * 2;  // what is to be learnt
  for (int step = 0; step < 200; ++step) {
    const torch::Tensor input = torch::randn({20, 10});  // each rank has data of its own
    optimizer.zero_grad();
    const torch::Tensor loss = torch::mse_loss(ddp(input), input.mm(truth));
    loss.backward();  // gradients are averaged over all ranks as they become ready
    optimizer.step();

    torch::Tensor mean = loss.detach().clone();
    lockstep::all_reduce(mean, {.op = lockstep::ReduceOp::avg});
    if (job.rank() == 0 && step % 50 == 49) std::printf("step %3d  loss %.4f\n", step + 1, mean.item<double>());
  }

  ddp.verify_in_sync();  // throws if any parameter differs on any rank
  if (job.rank() == 0) std::printf("%d replicas, bit-identical\n", job.world_size());
}

}  // namespace

int main(int argc, char** argv) {
  const CommandLine options(argc, argv, {{"--nproc", "2"}});
  return run_ranks(options.integer("--nproc"), train);
}
