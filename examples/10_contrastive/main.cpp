// Lesson 10: a loss over the samples of all ranks. A CLIP-style model learns which upper and lower halves of images
// belong together: two encoders map them to vectors, and each upper half must be nearest to its own lower half among
// those of the whole batch, on all ranks.
//
//   functional::all_gather_into_tensor()   every rank gets all vectors, and gradients flow back to the rank they are
//   from DistributedDataParallel                averages the gradients of the parameters
//
// so that the result is the gradient of one process with the whole batch: the program first compares both.
//
//   ./10_contrastive [--nproc 2] [--steps 300] [--batch 64]
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "common/command_line.h"
#include "common/fashion_mnist.h"

namespace {

struct EncodersImpl : torch::nn::Module {
  static constexpr std::int64_t kPixels = 14 * 28, kVector = 32;

  // One vector of length 1 for each half: first those of the upper halves, then those of the lower ones.
  torch::Tensor forward(const torch::Tensor& images) {
    const torch::Tensor halves = images.view({images.size(0), 2, kPixels});
    return torch::cat({unit(upper->forward(halves.select(1, 0))), unit(lower->forward(halves.select(1, 1)))});
  }

  static torch::Tensor unit(const torch::Tensor& vectors) { return vectors / vectors.norm(2, 1, true); }
  static torch::nn::Sequential encoder() {
    return torch::nn::Sequential(torch::nn::Linear(kPixels, 128), torch::nn::ReLU(), torch::nn::Linear(128, kVector));
  }
  torch::nn::Sequential upper = register_module("upper", encoder());
  torch::nn::Sequential lower = register_module("lower", encoder());
};
TORCH_MODULE(Encoders);

// How similar each upper half is to each lower half; row i belongs to column first + i.
torch::Tensor loss_of(const torch::Tensor& similarities, std::int64_t first) {
  const torch::Tensor own = torch::arange(first, first + similarities.size(0));
  return torch::nn::functional::cross_entropy(similarities / 0.1, own);
}

// The similarities of this rank's upper halves to the lower halves of all ranks.
torch::Tensor similarities(lockstep::DistributedDataParallel<Encoders>& ddp, const torch::Tensor& images) {
  const auto vectors = ddp(images).chunk(2);
  return torch::matmul(vectors[0], lockstep::functional::all_gather_into_tensor(vectors[1]).t());
}

// The largest difference between a gradient of this job and that of one process with the whole batch, relative to the
// largest gradient.
double difference_from_one_process(lockstep::DistributedDataParallel<Encoders>& ddp, const torch::Tensor& images) {
  const std::int64_t first = lockstep::get_rank() * images.size(0);
  loss_of(similarities(ddp, images), first).backward();

  Encoders alone;
  {
    torch::NoGradGuard no_grad;
    const auto from = ddp.module()->parameters(), to = alone->parameters();
    for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
  }
  torch::Tensor all = torch::empty({lockstep::get_world_size() * images.size(0), 1, 28, 28});
  lockstep::all_gather_into_tensor(all, images);
  const auto vectors = alone->forward(all).chunk(2);
  loss_of(torch::matmul(vectors[0], vectors[1].t()), 0).backward();

  double largest = 0, difference = 0;
  const auto here = ddp.module()->parameters(), there = alone->parameters();
  for (std::size_t i = 0; i < here.size(); ++i) {
    largest = std::max(largest, there[i].grad().abs().max().item<double>());
    difference = std::max(difference, (here[i].grad() - there[i].grad()).abs().max().item<double>());
  }
  return difference / largest;
}

void train(const CommandLine& options) {
  lockstep::ProcessGroupScope job;
  const bool leads = job.rank() == 0;
  torch::manual_seed(1);
  const FashionMnist data(/*train=*/true);
  const auto batch = static_cast<std::size_t>(options.integer("--batch"));
  const int steps = options.integer("--steps"), report_every = std::max(1, steps / 10);
  lockstep::DistributedSampler sampler(*data.size(), {.seed = 1, .drop_last = true});
  sampler.reset();

  lockstep::DistributedDataParallel<Encoders> ddp{Encoders()};
  lockstep::optim::AdamW optimizer(ddp->parameters(), torch::optim::AdamWOptions(1e-3));
  const double difference = difference_from_one_process(ddp, data.batch(*sampler.next(batch)).data);
  if (leads) std::printf("gradients differ from those of one process by %.1e of the largest\n", difference);

  for (int step = 1, epoch = 0; step <= steps; ++step) {
    auto indices = sampler.next(batch);
    while (!indices || indices->size() < batch) {  // the next epoch
      sampler.set_epoch(++epoch);
      sampler.reset();
      indices = sampler.next(batch);
    }
    optimizer.zero_grad();
    const std::int64_t first = job.rank() * static_cast<std::int64_t>(batch);
    const torch::Tensor similar = similarities(ddp, data.batch(*indices).data);
    const torch::Tensor loss = loss_of(similar, first);
    loss.backward();
    optimizer.step();
    if (step % report_every != 0) continue;
    lockstep::Accuracy found;
    found.add(similar, torch::arange(first, first + similar.size(0)));
    lockstep::Mean mean_loss;
    mean_loss.add(loss);
    const double accuracy = found.compute(), of_all_ranks = mean_loss.compute();
    if (leads) {
      std::printf("step %d/%d: loss %.3f, found %.0f %% of the halves among %lld\n", step, steps, of_all_ranks,
                  100 * accuracy, static_cast<long long>(similar.size(1)));
      std::fflush(stdout);
    }
  }
  ddp.verify_in_sync();
  if (leads) std::printf("%d replicas, bit-identical\n", job.world_size());
}

}  // namespace

int main(int argc, char** argv) {
  const CommandLine options(argc, argv, {{"--nproc", "2"}, {"--steps", "300"}, {"--batch", "64"}});
  return run_ranks(options.integer("--nproc"), [&] { train(options); });
}
