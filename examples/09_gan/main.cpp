// Lesson 9: several models, forwards and frozen parameters under DDP. A GAN trains two models against each other, each
// in its own DistributedDataParallel. In each step
//
//   the discriminator learns    two forwards (real images, generated ones) and one backward
//   it is frozen                requires_grad is off for all its parameters, so this forward is not synchronised
//   the generator learns        its gradient passes through the frozen discriminator
//
//   ./09_gan [--nproc 2] [--steps 600] [--batch 64] [--samples gan.pgm]
//   lockstep run --nproc-per-node 2 ./09_gan --steps 3000
// --samples names the file for 100 generated images, written at the end as one picture.
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>

#include "09_gan/networks.h"
#include "common/command_line.h"
#include "common/fashion_mnist.h"

namespace {

// The data set's images have mean 0; the generator's have pixels from -1 to 1.
torch::Tensor pixels(const torch::Tensor& images) { return (images * 0.353 + 0.286) * 2 - 1; }

torch::Tensor loss_of(const torch::Tensor& judgement, double truth) {
  return torch::binary_cross_entropy_with_logits(judgement, torch::full_like(judgement, truth));
}

void set_trainable(lockstep::DistributedDataParallel<Discriminator>& model, bool on) {
  for (auto& parameter : model->parameters()) parameter.set_requires_grad(on);
}

// Images from the same noise at each call. Calls the generator without DDP, because only one rank does this.
torch::Tensor generate(Generator& generator, std::int64_t count) {
  torch::NoGradGuard no_grad;
  auto random = at::detail::createCPUGenerator(7);
  generator->eval();
  const torch::Tensor images = generator->forward(torch::randn({count, GeneratorImpl::kNoise}, random));
  generator->train();
  return images;
}

// The distance between the average generated image and the average real one: the root mean square over the pixels.
double distance_of_means(Generator& generator, const FashionMnist& data) {
  const torch::Tensor real = pixels(data.images().slice(0, 0, 10000)).mean(0);
  return (generate(generator, 500).mean(0) - real).square().mean().sqrt().item<double>();
}

// Rows of `columns` images each, as a grey picture (PGM) that image viewers open.
void write_picture(const std::string& path, const torch::Tensor& images, std::int64_t columns) {
  const std::int64_t rows = images.size(0) / columns, side = images.size(2);
  const torch::Tensor picture = ((images + 1) * 127.5)
                                    .round()
                                    .to(torch::kByte)
                                    .view({rows, columns, side, side})
                                    .permute({0, 2, 1, 3})
                                    .contiguous();
  std::ofstream file(path, std::ios::binary);
  file << "P5\n" << columns * side << ' ' << rows * side << "\n255\n";
  file.write(static_cast<const char*>(picture.data_ptr()), picture.numel());
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

class Training {
 public:
  Training() {
    torch::manual_seed(1000 +
                       lockstep::get_rank());  // different noise on each rank; all ranks have the models of rank 0
  }

  // One step of both models. Returns both losses and the fraction of images that the discriminator classified
  // correctly.
  torch::Tensor step(const torch::Tensor& real) {
    const torch::Tensor fake = generator_(torch::randn({real.size(0), GeneratorImpl::kNoise}));

    discriminator_optimizer_.zero_grad();
    const torch::Tensor on_real = discriminator_(real), on_fake = discriminator_(fake.detach());
    // A target of 0.9 instead of 1 keeps the discriminator from becoming overconfident.
    const torch::Tensor discriminator_loss = loss_of(on_real, 0.9) + loss_of(on_fake, 0);
    discriminator_loss.backward();
    discriminator_optimizer_.step();

    set_trainable(discriminator_, false);
    generator_optimizer_.zero_grad();
    const torch::Tensor generator_loss = loss_of(discriminator_(fake), 1);
    generator_loss.backward();
    generator_optimizer_.step();
    set_trainable(discriminator_, true);

    torch::NoGradGuard no_grad;
    const torch::Tensor right = (on_real.gt(0).sum() + on_fake.lt(0).sum()) / (2.0 * static_cast<double>(real.size(0)));
    return torch::stack({discriminator_loss, generator_loss, right});
  }

  lockstep::DistributedDataParallel<Generator>& generator() { return generator_; }
  lockstep::DistributedDataParallel<Discriminator>& discriminator() { return discriminator_; }

 private:
  lockstep::DistributedDataParallel<Generator> generator_{Generator()};
  lockstep::DistributedDataParallel<Discriminator> discriminator_{Discriminator()};
  // The generator has the harder task, so its learning rate is larger.
  static torch::optim::AdamOptions adam(double rate) { return torch::optim::AdamOptions(rate).betas({0.5, 0.999}); }
  torch::optim::Adam generator_optimizer_{generator_->parameters(), adam(2e-3)};
  torch::optim::Adam discriminator_optimizer_{discriminator_->parameters(), adam(2e-4)};
};

void train(const CommandLine& options) {
  lockstep::ProcessGroupScope job;
  const bool leads = job.rank() == 0;
  torch::manual_seed(1);
  const FashionMnist data(/*train=*/true);
  const auto batch = static_cast<std::size_t>(options.integer("--batch"));
  const int steps = options.integer("--steps"), report_every = std::max(1, steps / 10);
  lockstep::DistributedSampler sampler(*data.size(), {.seed = 1, .drop_last = true});
  sampler.reset();

  Training training;
  const double distance_before = leads ? distance_of_means(training.generator().module(), data) : 0;
  torch::Tensor sums = torch::zeros(3);
  for (int step = 1, epoch = 0; step <= steps; ++step) {
    auto indices = sampler.next(batch);
    while (!indices || indices->size() < batch) {  // the next epoch
      sampler.set_epoch(++epoch);
      sampler.reset();
      indices = sampler.next(batch);
    }
    sums += training.step(pixels(data.batch(*indices).data));
    if (step % report_every != 0) continue;
    lockstep::all_reduce(sums, {.op = lockstep::ReduceOp::avg});
    sums /= report_every;
    if (leads) {
      std::printf("step %d/%d: discriminator loss %.3f (%.0f %% correct), generator loss %.3f\n", step, steps,
                  sums[0].item<double>(), 100 * sums[2].item<double>(), sums[1].item<double>());
      std::fflush(stdout);
    }
    sums.zero_();
  }

  training.generator().verify_in_sync();
  training.discriminator().verify_in_sync();
  if (!leads) return;
  std::printf("synchronised backward passes: discriminator %lld, generator %lld\n",
              static_cast<long long>(training.discriminator().logging_data().steps),
              static_cast<long long>(training.generator().logging_data().steps));
  std::printf("average generated image: %.3f from the average real one; %.3f before training\n",
              distance_of_means(training.generator().module(), data), distance_before);
  std::printf("%d replicas of both models, bit-identical\n", job.world_size());
  write_picture(options.text("--samples"), generate(training.generator().module(), 100), 10);
  std::printf("100 generated images are in %s\n", options.text("--samples").c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const CommandLine options(argc, argv,
                            {{"--nproc", "2"}, {"--steps", "600"}, {"--batch", "64"}, {"--samples", "gan.pgm"}});
  return run_ranks(options.integer("--nproc"), [&] { train(options); });
}
