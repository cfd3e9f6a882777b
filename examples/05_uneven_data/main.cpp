// Lesson 5: ranks with different amounts of data. Rank r has r + 1 batches and a smaller last one. Without join(), the
// last steps of the ranks with more data would fail. With join(), the ranks that have run out of data take part in the
// communication of the others' steps. sample_weighted makes every step equal to that of a single process with all
// samples. The program checks this: it also trains the same model in one process and compares the parameters.
//
//   ./05_uneven_data [--nproc 3]
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>

#include "common/command_line.h"

namespace {

constexpr std::int64_t kBatch = 8;

// The number of samples of a rank in a step: full batches, then a smaller one, then none.
std::int64_t samples_of(int rank, int step) { return step <= rank ? kBatch : step == rank + 1 ? 3 : 0; }

torch::Tensor data_of(int rank, int step) {
  const auto generator = torch::make_generator<torch::CPUGeneratorImpl>(static_cast<std::uint64_t>(100 * rank + step));
  return torch::randn({samples_of(rank, step), 4}, generator);
}
torch::Tensor truth(const torch::Tensor& input) { return input.sum(1, true).sin(); }

torch::nn::Sequential make_model() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(4, 16), torch::nn::Tanh(), torch::nn::Linear(16, 1));
}

void train() {
  lockstep::ProcessGroupScope job;
  torch::nn::Sequential model = make_model();
  lockstep::DistributedDataParallel ddp(model, {.sample_weighted = true});
  torch::optim::SGD optimizer(ddp->parameters(), 0.1);
  int steps = 0;
  ddp.join([&] {
    for (; samples_of(job.rank(), steps) > 0; ++steps) {
      const torch::Tensor input = data_of(job.rank(), steps);
      optimizer.zero_grad();
      torch::mse_loss(ddp(input), truth(input)).backward();
      optimizer.step();
    }
  });
  std::printf("rank %d made %d steps\n", job.rank(), steps);

  // One process with the samples of all ranks in each step.
  torch::nn::Sequential alone = make_model();
  torch::optim::SGD optimizer_alone(alone->parameters(), 0.1);
  for (int step = 0; step < job.world_size() + 1; ++step) {
    std::vector<torch::Tensor> all;
    for (int rank = 0; rank < job.world_size(); ++rank) all.push_back(data_of(rank, step));
    const torch::Tensor input = torch::cat(all);
    optimizer_alone.zero_grad();
    torch::mse_loss(alone->forward(input), truth(input)).backward();
    optimizer_alone.step();
  }
  double difference = 0;
  for (std::size_t i = 0; i < model->parameters().size(); ++i) {
    difference = std::max(difference, (model->parameters()[i] - alone->parameters()[i]).abs().max().item<double>());
  }
  if (difference > 1e-5) throw std::runtime_error("the parameters differ from those of one process with all samples");
  if (job.rank() == 0) std::printf("largest difference to one process with all samples: %.1e\n", difference);
}

}  // namespace

int main(int argc, char** argv) {
  const CommandLine options(argc, argv, {{"--nproc", "3"}});
  return run_ranks(options.integer("--nproc"), train);
}
