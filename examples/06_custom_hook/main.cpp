// Lesson 6: your own communication hook. This one sends only the signs of the gradients (signSGD with majority vote):
// one byte per element instead of four.
//
// DDP calls the hook for each bucket as soon as its gradients are complete, while backward is still running. The hook
// starts its communication and returns the work to wait for, and a function to run after that. What bucket.buffer()
// holds in the end becomes the gradients.
//
//   ./06_custom_hook [--nproc 2]
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>

#include "common/command_line.h"

namespace {

lockstep::HookFuture vote(const lockstep::GradBucket& bucket, lockstep::ProcessGroup& group) {
  const torch::Tensor signs = bucket.buffer().sign().to(torch::kChar);
  lockstep::Work work = group.all_reduce(signs, {.op = lockstep::ReduceOp::sum});  // up to 127 ranks
  return {{work}, [signs, buffer = bucket.buffer()] {
            buffer.copy_(signs.sign());
            return lockstep::HookFuture();  // done
          }};
}

void train() {
  lockstep::ProcessGroupScope job;
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(8, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
  lockstep::DistributedDataParallel ddp(model);
  ddp.register_comm_hook(lockstep::make_comm_hook("majority vote", vote));
  torch::optim::SGD optimizer(ddp->parameters(), 0.002);

  torch::manual_seed(100 + job.rank());
  double first = 0, last = 0;
  for (int step = 0; step < 300; ++step) {
    const torch::Tensor input = torch::randn({32, 8});
    optimizer.zero_grad();
    const torch::Tensor loss = torch::mse_loss(ddp(input), input.sum(1, true).tanh());
    loss.backward();
    optimizer.step();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  ddp.verify_in_sync();
  if (last > first / 2) throw std::runtime_error("the model has not learned");
  if (job.rank() == 0)
    std::printf("hook \"%s\": loss %.3f -> %.3f\n", ddp.logging_data().comm_hook.c_str(), first, last);
}

}  // namespace

int main(int argc, char** argv) {
  const CommandLine options(argc, argv, {{"--nproc", "2"}});
  return run_ranks(options.integer("--nproc"), train);
}
