// The members of LibTorch's optimizer options and states, and of Lion's, by name: one list for writing and for reading.
//
// fields_of(visitor, record) calls visitor.field(name, member) for numbers, flags, texts and optional ones of these,
// and visitor.tensor(name, member, shape) and visitor.tensors(name, list, shape) for tensors.
#pragma once

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <typeinfo>

#include "lockstep/ddp/fused_optimizers.h"

namespace lockstep::checkpoint {

// What a tensor's shape must be.
enum class StateShape : std::uint8_t {
  parameter,           // that of the parameter
  optional_parameter,  // the same, but it may not exist
  optional_flat,       // all parameters of the optimizer in one dimension
  optional_scalar,     // one element
};

template <typename Visitor>
void fields_of(Visitor& visit, torch::optim::SGDOptions& options) {
  visit.field("lr", options.lr());
  visit.field("momentum", options.momentum());
  visit.field("dampening", options.dampening());
  visit.field("weight_decay", options.weight_decay());
  visit.field("nesterov", options.nesterov());
}
template <typename Visitor>
void fields_of(Visitor& visit, torch::optim::SGDParamState& state) {
  visit.tensor("momentum_buffer", state.momentum_buffer(), StateShape::optional_parameter);
}

template <typename Visitor, typename Options>
void fields_of_adam_options(Visitor& visit, Options& options) {
  visit.field("lr", options.lr());
  visit.field("betas.0", std::get<0>(options.betas()));
  visit.field("betas.1", std::get<1>(options.betas()));
  visit.field("eps", options.eps());
  visit.field("weight_decay", options.weight_decay());
  visit.field("amsgrad", options.amsgrad());
}
template <typename Visitor, typename State>
void fields_of_adam_state(Visitor& visit, State& state) {
  visit.field("step", state.step());
  visit.tensor("exp_avg", state.exp_avg(), StateShape::parameter);
  visit.tensor("exp_avg_sq", state.exp_avg_sq(), StateShape::parameter);
  visit.tensor("max_exp_avg_sq", state.max_exp_avg_sq(), StateShape::optional_parameter);
}
template <typename Visitor>
void fields_of(Visitor& visit, torch::optim::AdamOptions& options) {
  fields_of_adam_options(visit, options);
}
template <typename Visitor>
void fields_of(Visitor& visit, torch::optim::AdamParamState& state) {
  fields_of_adam_state(visit, state);
}
template <typename Visitor>
void fields_of(Visitor& visit, torch::optim::AdamWOptions& options) {
  fields_of_adam_options(visit, options);
}
template <typename Visitor>
void fields_of(Visitor& visit, torch::optim::AdamWParamState& state) {
  fields_of_adam_state(visit, state);
}

template <typename Visitor>
void fields_of(Visitor& visit, torch::optim::RMSpropOptions& options) {
  visit.field("lr", options.lr());
  visit.field("alpha", options.alpha());
  visit.field("eps", options.eps());
  visit.field("weight_decay", options.weight_decay());
  visit.field("momentum", options.momentum());
  visit.field("centered", options.centered());
}
template <typename Visitor>
void fields_of(Visitor& visit, torch::optim::RMSpropParamState& state) {
  visit.field("step", state.step());
  visit.tensor("square_avg", state.square_avg(), StateShape::parameter);
  visit.tensor("momentum_buffer", state.momentum_buffer(), StateShape::optional_parameter);
  visit.tensor("grad_avg", state.grad_avg(), StateShape::optional_parameter);
}

template <typename Visitor>
void fields_of(Visitor& visit, torch::optim::AdagradOptions& options) {
  visit.field("lr", options.lr());
  visit.field("lr_decay", options.lr_decay());
  visit.field("weight_decay", options.weight_decay());
  visit.field("initial_accumulator_value", options.initial_accumulator_value());
  visit.field("eps", options.eps());
}
template <typename Visitor>
void fields_of(Visitor& visit, torch::optim::AdagradParamState& state) {
  visit.field("step", state.step());
  visit.tensor("sum", state.sum(), StateShape::parameter);
}

template <typename Visitor>
void fields_of(Visitor& visit, torch::optim::LBFGSOptions& options) {
  visit.field("lr", options.lr());
  visit.field("max_iter", options.max_iter());
  visit.field("max_eval", options.max_eval());
  visit.field("tolerance_grad", options.tolerance_grad());
  visit.field("tolerance_change", options.tolerance_change());
  visit.field("history_size", options.history_size());
  visit.field("line_search_fn", options.line_search_fn());
}
// Not al(): every step fills it before it reads it.
template <typename Visitor>
void fields_of(Visitor& visit, torch::optim::LBFGSParamState& state) {
  visit.field("func_evals", state.func_evals());
  visit.field("n_iter", state.n_iter());
  visit.field("t", state.t());
  visit.field("prev_loss", state.prev_loss());
  visit.tensor("d", state.d(), StateShape::optional_flat);
  visit.tensor("H_diag", state.H_diag(), StateShape::optional_scalar);
  visit.tensor("prev_flat_grad", state.prev_flat_grad(), StateShape::optional_flat);
  visit.tensors("old_dirs", state.old_dirs(), StateShape::optional_flat);
  visit.tensors("old_stps", state.old_stps(), StateShape::optional_flat);
  visit.tensors("ro", state.ro(), StateShape::optional_scalar);
}

template <typename Visitor>
void fields_of(Visitor& visit, optim::LionOptions& options) {
  visit.field("lr", options.lr());
  visit.field("betas.0", std::get<0>(options.betas()));
  visit.field("betas.1", std::get<1>(options.betas()));
  visit.field("weight_decay", options.weight_decay());
}
template <typename Visitor>
void fields_of(Visitor& visit, optim::LionParamState& state) {
  visit.tensor("exp_avg", state.exp_avg(), StateShape::parameter);
}

template <typename OptionsType, typename StateType>
struct OptimizerKind {
  using Options = OptionsType;
  using State = StateType;
};
// Calls function(name, OptimizerKind) for the kind of optimizer whose options these are. False if they are of another
// class.
template <typename Function>
bool with_kind(const torch::optim::OptimizerOptions& options, Function&& function) {
  using namespace torch::optim;
  const auto is = [&]<typename Kind>(const char* name, Kind kind) {
    if (typeid(options) != typeid(typename Kind::Options)) return false;
    function(name, kind);
    return true;
  };
  return is("SGD", OptimizerKind<SGDOptions, SGDParamState>()) ||
         is("Adam", OptimizerKind<AdamOptions, AdamParamState>()) ||
         is("AdamW", OptimizerKind<AdamWOptions, AdamWParamState>()) ||
         is("RMSprop", OptimizerKind<RMSpropOptions, RMSpropParamState>()) ||
         is("Adagrad", OptimizerKind<AdagradOptions, AdagradParamState>()) ||
         is("LBFGS", OptimizerKind<LBFGSOptions, LBFGSParamState>()) ||
         is("Lion", OptimizerKind<optim::LionOptions, optim::LionParamState>());
}

}  // namespace lockstep::checkpoint
