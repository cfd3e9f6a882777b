// Lesson 3: a complete training program. It trains a convolutional network with batch norm on Fashion-MNIST, on several
// processes. New here: DistributedSampler, which gives each rank a different shard of the data in every epoch, and
// evaluation on all ranks, whose counts are summed. At the end it checks that the replicas are bit-identical.
//
//   ./03_fashion_mnist [--nproc 2] [--epochs 3] [--batch 64] [--samples 60000] [--compare 0]
// --compare 1 first trains for a few steps in one process, and prints how much faster all processes together are.
// ./quickstart.sh builds and runs this example.
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>

#include "common/command_line.h"
#include "common/fashion_mnist.h"
#include "common/fashion_net.h"
#include "common/test_accuracy.h"

namespace {

// Samples per second of one process alone, with the same batch.
double speed_of_one(const FashionMnist& data, std::size_t batch, int steps) {
  FashionNet model;
  torch::optim::Adam optimizer(model->parameters(), 2e-3);
  std::vector<std::size_t> indices(batch);
  std::chrono::steady_clock::time_point begin;
  for (int step = -20; step < steps; ++step) {  // the first 20 are a warm-up
    if (step == 0) begin = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < batch; ++i)
      indices[i] = (static_cast<std::size_t>(step + 20) * batch + i) % *data.size();
    const auto example = data.batch(indices);
    optimizer.zero_grad();
    torch::cross_entropy_loss(model(example.data), example.target).backward();
    optimizer.step();
  }
  return static_cast<double>(batch) * steps /
         std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void train(const CommandLine& options) {
  lockstep::ProcessGroupScope job;
  const bool leads = job.rank() == 0;
  torch::manual_seed(1);
  const FashionMnist data(/*train=*/true), test(/*train=*/false);
  const auto batch = static_cast<std::size_t>(options.integer("--batch"));
  const auto samples = std::min<std::size_t>(*data.size(), static_cast<std::size_t>(options.integer("--samples")));
  double alone = 0;
  if (options.integer("--compare") != 0) {
    if (leads) alone = speed_of_one(data, batch, 60);
    lockstep::barrier();
  }

  FashionNet model;
  lockstep::DistributedDataParallel ddp(model);
  lockstep::optim::Adam optimizer(ddp->parameters(), torch::optim::AdamOptions(2e-3));
  lockstep::DistributedSampler sampler(samples, {.seed = 1});

  const int epochs = options.integer("--epochs");
  // Smaller steps in the last epoch. What a schedule counts is the program's choice: here it counts epochs.
  lockstep::LearningRate rate(optimizer, lockstep::schedule::multi_step({.milestones = {epochs - 1}, .gamma = 0.25}));
  double exposed = 0, step_seconds = 0, speed = 0;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    sampler.set_epoch(epoch);
    sampler.reset();
    rate.apply(epoch);
    lockstep::Progress progress("epoch " + std::to_string(epoch + 1) + "/" + std::to_string(epochs),
                                {.total = static_cast<std::int64_t>(samples)});
    while (const auto indices = sampler.next(batch)) {
      const auto example = data.batch(*indices);
      optimizer.zero_grad();
      const torch::Tensor loss = torch::cross_entropy_loss(ddp(example.data), example.target);
      loss.backward();
      optimizer.step();
      exposed += ddp.logging_data().exposed_communication_seconds;
      const double value = loss.item<double>();
      lockstep::log_metric("loss", value);  // lockstep run --metrics shows the mean over all ranks
      progress.advance(static_cast<std::int64_t>(indices->size()) * job.world_size(), {{"loss", value}});
    }
    step_seconds += progress.seconds();
    speed = progress.per_second();
    model->eval();
    const double accuracy = test_accuracy(test, [&](const torch::Tensor& images) { return model(images); });
    model->train();
    if (leads) lockstep::log_metric("test accuracy", accuracy, epoch + 1);
    if (leads) std::printf("epoch %d: test accuracy %.2f %%\n", epoch + 1, accuracy * 100);
  }

  ddp.verify_in_sync();
  if (!leads) return;
  std::printf("%.0f samples/s on %d processes", speed, job.world_size());
  if (alone > 0) std::printf(", %.0f on one alone: %.2f times as fast", alone, speed / alone);
  std::printf("\nexposed communication: %.1f %% of the time\n", 100 * exposed / step_seconds);
  std::printf("%d replicas, bit-identical\n", job.world_size());
}

}  // namespace

int main(int argc, char** argv) {
  const CommandLine options(
      argc, argv, {{"--nproc", "2"}, {"--epochs", "3"}, {"--batch", "64"}, {"--samples", "60000"}, {"--compare", "0"}});
  return run_ranks(options.integer("--nproc"), [&] { train(options); });
}
