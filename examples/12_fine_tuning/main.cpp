// Lesson 12: fine-tune weights from Python. net.py trains a network on five of the ten classes; this program loads its
// weights, all but those of the last layer, and trains it on all ten, on several processes; and net.py evaluates the
// result in Python, with the same accuracy.
//
//   load_weights(strict = false)   loads what fits, and reports the rest: the last layer has another shape
//   save_weights()                 writes a file that Python's model.load_state_dict(torch.load(path)) takes
//
//   python3 examples/12_fine_tuning/net.py pretrain pretrained.pt
//   ./12_fine_tuning --weights pretrained.pt --out finetuned.pt [--nproc 2] [--steps 100] [--batch 64]
//   python3 examples/12_fine_tuning/net.py evaluate finetuned.pt
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>

#include "common/command_line.h"
#include "common/fashion_mnist.h"
#include "common/fashion_net.h"
#include "common/test_accuracy.h"

namespace {

void fine_tune(const CommandLine& options) {
  lockstep::ProcessGroupScope job;
  const bool leads = job.rank() == 0;
  torch::manual_seed(1);
  const FashionMnist data(/*train=*/true), test(/*train=*/false);

  FashionNet model;
  // DDP takes the parameters from rank 0, so it suffices that rank 0 loads them.
  if (leads) {
    const auto report = lockstep::load_weights(*model, options.text("--weights"), {.strict = false});
    std::printf("%s\n", report.describe().c_str());
  }
  lockstep::DistributedDataParallel ddp(model);
  lockstep::optim::Adam optimizer(ddp->parameters(), torch::optim::AdamOptions(1e-3));
  lockstep::DistributedSampler sampler(*data.size(), {.seed = 1});
  const auto accuracy = [&] {
    ddp.sync_buffers();  // the statistics of batch norm differ between ranks until the next forward
    model->eval();
    const double result = test_accuracy(test, [&](const torch::Tensor& images) { return model(images); });
    model->train();
    return 100 * result;
  };

  const double before = accuracy();
  const int steps = options.integer("--steps");
  for (int step = 0; step < steps; ++step) {
    const auto indices = sampler.next(static_cast<std::size_t>(options.integer("--batch")));
    if (!indices) break;  // the end of the epoch
    const auto batch = data.batch(*indices);
    optimizer.zero_grad();
    torch::cross_entropy_loss(ddp(batch.data), batch.target).backward();
    optimizer.step();
  }
  const double after = accuracy();

  ddp.verify_in_sync();
  if (!leads) return;
  std::printf("before: test accuracy %.2f %%\n", before);
  std::printf("after: test accuracy %.2f %%\n", after);
  std::printf("%d replicas, bit-identical\n", job.world_size());
  lockstep::save_weights(*model, options.text("--out"));
}

}  // namespace

int main(int argc, char** argv) {
  const CommandLine options(argc, argv,
                            {{"--weights", "pretrained.pt"},
                             {"--out", "finetuned.pt"},
                             {"--nproc", "2"},
                             {"--steps", "100"},
                             {"--batch", "64"}});
  return run_ranks(options.integer("--nproc"), [&] { fine_tune(options); });
}
