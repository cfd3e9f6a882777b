// What LibTorch's optimizers keep for each parameter: tensors, and how many steps they have made with it.
#pragma once

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <vector>

namespace lockstep::checkpoint {

using StateTensors = std::vector<at::Tensor*>;  // some may be undefined

inline StateTensors tensors_in(torch::optim::SGDParamState& state) { return {&state.momentum_buffer()}; }
inline StateTensors tensors_in(torch::optim::AdamParamState& state) {
  return {&state.exp_avg(), &state.exp_avg_sq(), &state.max_exp_avg_sq()};
}
inline StateTensors tensors_in(torch::optim::AdamWParamState& state) {
  return {&state.exp_avg(), &state.exp_avg_sq(), &state.max_exp_avg_sq()};
}
inline StateTensors tensors_in(torch::optim::RMSpropParamState& state) {
  return {&state.square_avg(), &state.momentum_buffer(), &state.grad_avg()};
}
inline StateTensors tensors_in(torch::optim::AdagradParamState& state) { return {&state.sum()}; }

inline std::int64_t steps_in(const torch::optim::SGDParamState&) { return 0; }
template <typename ParamState>
std::int64_t steps_in(const ParamState& state) {
  return state.step();
}

}  // namespace lockstep::checkpoint
