// Lesson 11: train a model that was defined in Python. model.py scripts a PyTorch model into a file; this program
// trains whatever classifier is in it, on several processes; and model.py evaluates the result in Python. The program
// does not change when the model does: a torch::jit::Module takes the place of a torch::nn::Module everywhere.
//
//   python3 examples/11_torchscript/model.py define model.pt            # --model cnn or mlp
//   ./11_torchscript --model model.pt --out trained.pt [--nproc 2] [--epochs 1] [--batch 64] [--samples 60000]
//   python3 examples/11_torchscript/model.py evaluate trained.pt
#include <lockstep/lockstep.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <cstdio>

#include "common/command_line.h"
#include "common/fashion_mnist.h"
#include "common/test_accuracy.h"

namespace {

void train(const CommandLine& options) {
  lockstep::ProcessGroupScope job;
  const FashionMnist data(/*train=*/true), test(/*train=*/false);
  const auto samples = std::min<std::size_t>(*data.size(), static_cast<std::size_t>(options.integer("--samples")));

  torch::jit::Module model = torch::jit::load(options.text("--model"));
  lockstep::DistributedDataParallel ddp(model);
  lockstep::optim::Adam optimizer(ddp->parameters(), torch::optim::AdamOptions(2e-3));
  lockstep::DistributedSampler sampler(samples, {.seed = 1});

  for (int epoch = 0; epoch < options.integer("--epochs"); ++epoch) {
    sampler.set_epoch(epoch);
    sampler.reset();
    model.train();
    lockstep::Progress progress("epoch " + std::to_string(epoch + 1), {.total = static_cast<std::int64_t>(samples)});
    while (const auto indices = sampler.next(static_cast<std::size_t>(options.integer("--batch")))) {
      const auto batch = data.batch(*indices);
      optimizer.zero_grad();
      const torch::Tensor loss = torch::cross_entropy_loss(ddp(batch.data).toTensor(), batch.target);
      loss.backward();
      optimizer.step();
      progress.advance(static_cast<std::int64_t>(indices->size()) * job.world_size(), {{"loss", loss.item<double>()}});
    }
    ddp.sync_buffers();  // the statistics of batch norm differ between ranks until the next forward
    model.eval();
    const double accuracy =
        test_accuracy(test, [&](const torch::Tensor& images) { return model.forward({images}).toTensor(); });
    if (job.rank() == 0) std::printf("epoch %d: test accuracy %.2f %%\n", epoch + 1, accuracy * 100);
  }

  ddp.verify_in_sync();
  if (job.rank() != 0) return;
  std::printf("%d replicas, bit-identical\n", job.world_size());
  model.save(options.text("--out"));  // with its code: torch.jit.load() needs no class
}

}  // namespace

int main(int argc, char** argv) {
  const CommandLine options(argc, argv,
                            {{"--model", "model.pt"},
                             {"--out", "trained.pt"},
                             {"--nproc", "2"},
                             {"--epochs", "1"},
                             {"--batch", "64"},
                             {"--samples", "60000"}});
  return run_ranks(options.integer("--nproc"), [&] { train(options); });
}
