// Optimizers that make a step in one pass over memory: SGD, Adam, AdamW, Adagrad, RMSprop and Lion.
//
//   lockstep::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-3).weight_decay(0.1));
//   optimizer.step_options().max_norm = 1.0;                 // clips the gradients, in the same pass
//   ...
//   optimizer.step();
//
// They are torch's optimizers with another step(): the same constructors, options, parameter groups and state, so that
// schedulers, snapshots and code that takes a torch::optim::AdamW& work unchanged. A snapshot of torch::optim::AdamW
// continues here, and the other way round. They need no process group. For the CPU; gradients must be dense.
//
// For equal gradients, parameters and state have the same bits on every machine and for any number of threads. They
// differ from torch::optim's by rounding only; docs/optimizers.md states by how much.
//
// Parameters may be f32, f64, f16 or bf16. State is f32 (f64 for f64), also for f16 and bf16, where torch's is as short
// as the parameter. f16 and bf16 parameters have master weights in f32, which are saved with the optimizer; what else
// writes to such a parameter overrides its master weight.
#pragma once

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace lockstep::optim {

// What a step does to the gradients before it uses them. The gradients themselves stay as they are.
struct StepOptions {
  // Gradients are divided by it: the factor by which the program has multiplied the loss.
  double loss_scale = 1;
  // More than 0: if the norm of all gradients together, without the loss scale, is greater, gradients are scaled down
  // to this norm, as clip_grad_norm_ does. The norm has the same bits on all ranks that have the same gradients: give
  // parameters that DDP ignores, whose gradients differ, an optimizer of their own. The same holds for skip_nonfinite.
  double max_norm = 0;
  // If a gradient is infinite or NaN, the step changes nothing at all.
  bool skip_nonfinite = false;
  // Ascend instead of descend.
  bool maximize = false;
};

struct StepResult {
  bool skipped = false;
  // Of all gradients, without the loss scale, before clipping. Only with max_norm or skip_nonfinite.
  std::optional<double> gradient_norm = std::nullopt;
};

// What all fused optimizers have besides torch's functions.
class FusedOptimizer {
 public:
  virtual ~FusedOptimizer() = default;
  // For all steps from now on.
  StepOptions& step_options() { return step_options_; }
  const StepOptions& step_options() const { return step_options_; }
  // What the last step() did.
  const StepResult& last_step() const { return last_step_; }
  // The optimizer whose state this one has, as snapshots name it: "torch::optim::AdamW".
  virtual std::string state_kind() const = 0;

 protected:
  StepOptions step_options_;
  StepResult last_step_;
};

// `Plain`: the class of torch::optim that defines options and state.
template <typename Plain>
class Fused : public Plain, public FusedOptimizer {
 public:
  using Plain::Plain;
  using typename torch::optim::Optimizer::LossClosure;

  // Updates all parameters that have a gradient, with as many threads as at::get_num_threads(). Throws Error
  // (invalid_argument), before anything has changed, if a parameter is not on the CPU, has a sparse gradient or an
  // unsupported type, or if its type or shape has changed since its state was made. Returns the closure's loss.
  torch::Tensor step(LossClosure closure = nullptr) override;
  // As Plain's, with the master weights.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;
  std::string state_kind() const override;
};

using SGD = Fused<torch::optim::SGD>;
using Adam = Fused<torch::optim::Adam>;
using AdamW = Fused<torch::optim::AdamW>;
using Adagrad = Fused<torch::optim::Adagrad>;
using RMSprop = Fused<torch::optim::RMSprop>;

// Lion ("Symbolic Discovery of Optimization Algorithms", 2023): the sign of an average of gradients; half of Adam's
// state. Its learning rate is usually 3 to 10 times smaller than AdamW's, and its weight decay as much greater.
struct LionOptions : public torch::optim::OptimizerCloneableOptions<LionOptions> {
  LionOptions(double lr = 1e-4) : lr_(lr) {}
  TORCH_ARG(double, lr) = 1e-4;
  typedef std::tuple<double, double> betas_t;
  TORCH_ARG(betas_t, betas) = std::make_tuple(0.9, 0.99);
  TORCH_ARG(double, weight_decay) = 0;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr(); }
  void set_lr(const double lr) override { lr_ = lr; }
};

struct LionParamState : public torch::optim::OptimizerCloneableParamState<LionParamState> {
  TORCH_ARG(torch::Tensor, exp_avg);

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

class PlainLion : public torch::optim::Optimizer {
 public:
  explicit PlainLion(std::vector<torch::optim::OptimizerParamGroup> groups, LionOptions defaults = {});
  explicit PlainLion(std::vector<torch::Tensor> parameters, LionOptions defaults = {});
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;
};

using Lion = Fused<PlainLion>;

extern template class Fused<torch::optim::SGD>;
extern template class Fused<torch::optim::Adam>;
extern template class Fused<torch::optim::AdamW>;
extern template class Fused<torch::optim::Adagrad>;
extern template class Fused<torch::optim::RMSprop>;
extern template class Fused<PlainLion>;

}  // namespace lockstep::optim
