// Every optimizer of LibTorch and some fused ones, with options that give them all the state that they can have.
#pragma once

#include <torch/optim.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/ddp/fused_optimizers.h"

namespace lockstep::testing {

using Parameters = std::vector<at::Tensor>;

struct TestOptimizer {
  std::string name;
  std::function<std::unique_ptr<torch::optim::Optimizer>(const Parameters&)> make;
};

inline void PrintTo(const TestOptimizer& kind, std::ostream* out) { *out << kind.name; }

template <typename Plain, typename Options>
TestOptimizer test_optimizer(const std::string& name, const Options& options) {
  return {name, [options](const Parameters& p) -> std::unique_ptr<torch::optim::Optimizer> {
            return std::make_unique<Plain>(p, options);
          }};
}

inline std::vector<TestOptimizer> optimizer_kinds() {
  using namespace torch::optim;
  return {test_optimizer<SGD>("SGD", SGDOptions(0.01)),
          test_optimizer<SGD>("SGDMomentum", SGDOptions(0.01).momentum(0.9).nesterov(true)),
          test_optimizer<Adam>("Adam", AdamOptions(0.01).amsgrad(true).betas({0.8, 0.99})),
          test_optimizer<AdamW>("AdamW", AdamWOptions(0.01).weight_decay(0.2)),
          test_optimizer<RMSprop>("RMSprop", RMSpropOptions(0.01).centered(true).momentum(0.5)),
          test_optimizer<Adagrad>("Adagrad", AdagradOptions(0.01).lr_decay(0.1)),
          test_optimizer<optim::SGD>("FusedSGD", SGDOptions(0.01).momentum(0.9)),
          test_optimizer<optim::AdamW>("FusedAdamW", AdamWOptions(0.01).amsgrad(true)),
          test_optimizer<optim::Lion>("Lion", optim::LionOptions(0.01).weight_decay(0.1)),
          {"LBFGS", [](const Parameters& p) -> std::unique_ptr<torch::optim::Optimizer> {
             // Contiguous ones of one type: LBFGS puts the gradients into one tensor.
             return std::make_unique<LBFGS>(Parameters(p.begin(), p.begin() + 2), LBFGSOptions(0.1).max_iter(3));
           }}};
}

}  // namespace lockstep::testing
