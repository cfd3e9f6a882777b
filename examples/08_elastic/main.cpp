// Lesson 8: training that survives failures. Kill any of its processes while it trains: the others continue, and the
// launcher starts a replacement, which receives the state from its peers. What must survive a failure is in
// elastic::State; the function given to elastic::run() runs again in every generation of the group.
//
//   lockstep run --elastic --nproc-per-node 4 ./08_elastic --epochs 3
//   pkill -9 -n 08_elastic            # in another terminal: kills the newest process
// --snapshots FOLDER also writes snapshots: if the whole job ends, the next one continues from the newest.
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>
#include <memory>

#include "common/command_line.h"
#include "common/fashion_mnist.h"
#include "common/fashion_net.h"

namespace {

namespace elastic = lockstep::elastic;
namespace checkpoint = lockstep::checkpoint;

double test_accuracy(FashionNet& model, const FashionMnist& data, const elastic::Context& context) {
  torch::NoGradGuard no_grad;
  model->eval();
  std::vector<std::size_t> mine;
  for (auto i = static_cast<std::size_t>(context.rank()); i < *data.size();
       i += static_cast<std::size_t>(context.world_size())) {
    mine.push_back(i);
  }
  const auto batch = data.batch(mine);
  lockstep::Accuracy accuracy;
  accuracy.add(model(batch.data), batch.target);
  model->train();
  return accuracy.compute();
}

int train(const CommandLine& options) {
  torch::manual_seed(1);
  torch::set_num_threads(1);
  const FashionMnist data(/*train=*/true), test(/*train=*/false);
  const int epochs = options.integer("--epochs");
  const auto batch_size = static_cast<std::size_t>(options.integer("--batch"));
  const std::int64_t samples =
      std::min<std::int64_t>(options.integer("--samples"), static_cast<std::int64_t>(*data.size()));

  // What lasts from one generation to the next is created here and belongs to the state.
  FashionNet model;
  lockstep::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(2e-3));
  lockstep::LearningRate rate(optimizer, lockstep::schedule::constant({.warmup_steps = 50, .warmup_start = 0.1}));
  elastic::State state{.model = *model, .optimizer = optimizer};
  state.sampler = lockstep::DistributedSamplerState{.seed = 1, .dataset_size = samples};
  const bool keeps_snapshots = !options.text("--snapshots").empty();
  if (keeps_snapshots) {
    if (const auto loaded = checkpoint::Snapshots(options.text("--snapshots"), {.alone = true}).load(state)) {
      std::printf("continuing from %s: epoch %ld, step %ld\n", loaded->path.c_str(), state.epoch + 1, state.step);
    }
  }

  const auto outcome = elastic::run(state, [&](elastic::Context& context) {
    // What depends on the ranks is created again in every generation.
    lockstep::DistributedDataParallel ddp(model, {.sample_weighted = true});
    checkpoint::Snapshots snapshots(options.text("--snapshots"), {.asynchronous = true});
    const bool leads = context.rank() == 0;
    if (leads) {
      std::printf("generation %ld: %d ranks, at step %ld\n", context.generation(), context.world_size(),
                  context.step());
      std::fflush(stdout);
    }
    while (context.epoch() < epochs) {
      while (const auto indices = context.next_batch(batch_size)) {
        const auto batch = data.batch(*indices);
        optimizer.zero_grad();
        const torch::Tensor loss = torch::cross_entropy_loss(ddp(batch.data), batch.target);
        loss.backward();
        context.step(optimizer, rate);  // a newcomer has the step of the others, and so their rate
        context.commit();
        if (leads && context.step() % 100 == 0) {
          std::printf("epoch %ld step %ld loss %.4f\n", context.epoch() + 1, context.step(), loss.item<double>());
          std::fflush(stdout);
        }
        if (keeps_snapshots && context.step() % 200 == 0) snapshots.save(state);
      }
      const double accuracy = test_accuracy(model, test, context);
      if (leads) std::printf("epoch %ld: test accuracy %.2f %%\n", context.epoch() + 1, accuracy * 100);
      context.next_epoch();
    }
    ddp.verify_in_sync();
    if (leads) std::printf("%d replicas, bit-identical\n", context.world_size());
  });
  if (outcome == elastic::Outcome::finished_elsewhere) std::printf("the job finished before this process joined\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const CommandLine options(argc, argv,
                            {{"--epochs", "3"}, {"--batch", "64"}, {"--samples", "60000"}, {"--snapshots", ""}});
  try {
    return train(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
