// For tests of the fused optimizers: every kind beside torch's, with random options.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/ddp/fused_optimizers.h"

namespace lockstep::testing {

using Groups = std::vector<torch::optim::OptimizerParamGroup>;
using Parameters = std::vector<at::Tensor>;

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::int64_t below(std::int64_t end) { return std::uniform_int_distribution<std::int64_t>(0, end - 1)(engine_); }
  bool coin() { return below(2) == 0; }
  double between(double low, double high) { return std::uniform_real_distribution<double>(low, high)(engine_); }
  double maybe(double value) { return coin() ? value : 0; }

 private:
  std::mt19937_64 engine_;
};

// Makes the fused optimizer or torch's, with the same options for each group.
struct Pair {
  std::string name;
  std::function<std::unique_ptr<torch::optim::Optimizer>(const std::vector<Parameters>&, bool fused)> make;
};

// draw(random): the options of a group, which must be the same for both.
template <typename Plain, typename Options, typename Draw>
Pair make_pair_of(const std::string& name, std::uint64_t seed, Draw draw) {
  return {name,
          [seed, draw](const std::vector<Parameters>& groups, bool fused) -> std::unique_ptr<torch::optim::Optimizer> {
            Random random(seed);
            Groups with_options;
            const Options defaults = draw(random);
            for (const Parameters& parameters : groups) {
              with_options.emplace_back(parameters, std::make_unique<Options>(draw(random)));
            }
            if (fused) return std::make_unique<optim::Fused<Plain>>(with_options, defaults);
            return std::make_unique<Plain>(with_options, defaults);
          }};
}

inline std::vector<Pair> all_pairs(std::uint64_t seed) {
  using namespace torch::optim;
  std::vector<Pair> pairs;
  pairs.push_back(make_pair_of<SGD, SGDOptions>("SGD", seed, [](Random& random) {
    SGDOptions options(random.between(1e-3, 0.1));
    options.weight_decay(random.maybe(0.01)).momentum(random.maybe(0.9));
    if (options.momentum() != 0 && random.coin()) return options.nesterov(true);
    return options.dampening(random.maybe(0.3));
  }));
  pairs.push_back(make_pair_of<Adam, AdamOptions>("Adam", seed, [](Random& random) {
    AdamOptions options(random.between(1e-4, 0.1));
    options.betas({random.between(0.5, 0.95), random.between(0.9, 0.999)}).weight_decay(random.maybe(0.1));
    return options.amsgrad(random.coin()).eps(random.coin() ? 1e-8 : 1e-3);
  }));
  pairs.push_back(make_pair_of<AdamW, AdamWOptions>("AdamW", seed, [](Random& random) {
    AdamWOptions options(random.between(1e-4, 0.1));
    options.betas({random.between(0.5, 0.95), random.between(0.9, 0.999)}).weight_decay(random.maybe(0.1));
    return options.amsgrad(random.coin()).eps(random.coin() ? 1e-8 : 1e-3);
  }));
  pairs.push_back(make_pair_of<Adagrad, AdagradOptions>("Adagrad", seed, [](Random& random) {
    AdagradOptions options(random.between(1e-3, 0.1));
    options.lr_decay(random.maybe(0.1)).weight_decay(random.maybe(0.1));
    return options;
  }));
  pairs.push_back(make_pair_of<RMSprop, RMSpropOptions>("RMSprop", seed, [](Random& random) {
    RMSpropOptions options(random.between(1e-4, 0.01));
    options.alpha(random.between(0.8, 0.99)).weight_decay(random.maybe(0.1)).momentum(random.maybe(0.9));
    return options.centered(random.coin()).eps(1e-3);
  }));
  return pairs;
}

// Parameters of random shapes, some of them not contiguous; the same values in each call with the same seed.
inline std::vector<Parameters> random_parameters(std::uint64_t seed, at::ScalarType type) {
  Random random(seed);
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  std::vector<Parameters> groups(static_cast<std::size_t>(1 + random.below(3)));
  for (Parameters& group : groups) {
    const std::int64_t count = 1 + random.below(4);
    for (std::int64_t i = 0; i < count; ++i) {
      std::vector<std::int64_t> shape;
      for (std::int64_t d = random.below(5); d > 0; --d)
        shape.push_back(random.below(8) + (random.below(20) == 0 ? 0 : 1));
      at::Tensor value = at::randn(shape, generator, at::kDouble).to(type);
      const std::int64_t layout = random.below(4);
      if (layout == 0 && value.dim() == 4) value = value.contiguous(at::MemoryFormat::ChannelsLast);
      if (layout == 1 && value.dim() >= 2) value = value.transpose(0, 1);
      if (layout == 2 && value.dim() >= 1)
        value = at::cat({value, value}, 0).slice(0, 0, 2 * value.size(0), 2).detach();
      group.push_back(value.requires_grad_());
    }
  }
  return groups;
}

// The gradients of a step: the same for each call with the same seed. Some are missing, some have another layout.
inline void set_gradients(const std::vector<Parameters>& groups, std::uint64_t seed) {
  Random random(seed);
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  for (const Parameters& group : groups) {
    for (at::Tensor parameter : group) {
      at::Tensor gradient = at::randn(parameter.sizes(), generator, at::kDouble).to(parameter.scalar_type());
      if (random.below(3) == 0 && gradient.dim() >= 2) {
        gradient = gradient.transpose(0, 1).contiguous().transpose(0, 1);
      }
      parameter.mutable_grad() = random.below(10) == 0 ? at::Tensor() : gradient;
    }
  }
}

}  // namespace lockstep::testing
