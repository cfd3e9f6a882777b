// Lion's options and state, in torch's terms.
#include <fmt/format.h>
#include <torch/optim/serialize.h>
#include <torch/serialize/archive.h>

#include <utility>

#include "lockstep/base/status.h"
#include "lockstep/ddp/fused_optimizers.h"

namespace lockstep::optim {

void LionOptions::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(lr);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(betas);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(weight_decay);
}
void LionOptions::serialize(torch::serialize::InputArchive& archive) {
  using torch::IValue;
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, lr);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(betas_t, betas);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, weight_decay);
}

void LionParamState::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(exp_avg);
}
void LionParamState::serialize(torch::serialize::InputArchive& archive) {
  using torch::IValue;
  using torch::Tensor;
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(Tensor, exp_avg);
}

PlainLion::PlainLion(std::vector<torch::optim::OptimizerParamGroup> groups, LionOptions defaults)
    : Optimizer(std::move(groups), std::make_unique<LionOptions>(defaults)) {
  const auto [beta1, beta2] = defaults.betas();
  if (!(defaults.lr() >= 0) || !(defaults.weight_decay() >= 0) || !(beta1 >= 0 && beta1 < 1) ||
      !(beta2 >= 0 && beta2 < 1)) {
    throw Error({StatusCode::invalid_argument,
                 fmt::format("optim::Lion: lr is {}, weight_decay {}, betas {} and {}; lr and weight_decay must not be "
                             "negative, and betas from 0 to less than 1",
                             defaults.lr(), defaults.weight_decay(), beta1, beta2)});
  }
}

PlainLion::PlainLion(std::vector<torch::Tensor> parameters, LionOptions defaults)
    : PlainLion(
          std::vector<torch::optim::OptimizerParamGroup>{torch::optim::OptimizerParamGroup(std::move(parameters))},
          defaults) {}

void PlainLion::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<LionParamState, LionOptions>(archive, *this);
}
void PlainLion::load(torch::serialize::InputArchive& archive) {
  torch::optim::serialize<LionParamState, LionOptions>(archive, *this);
}

}  // namespace lockstep::optim
