// How each fused optimizer translates torch's options and state into a rule.
//
// A Kind has for its class of torch::optim:
//   Options, State
//   kName                       as snapshots name it
//   tensors(state)              the state's tensors, in the order of Shard::states; null: has none in this place
//   used(options)               a bit for each tensor that these options need
//   initial(options)            the value of new tensors
//   rule(options, state, first) the rule of the next step, which is counted. first: the first tensor was new
#pragma once

#include <array>
#include <tuple>

#include "lockstep/ddp/fused_optimizers.h"
#include "optim/update.h"

namespace lockstep::optim::detail {

using StateTensors = std::array<at::Tensor*, kMaxStates>;

template <typename Plain>
struct Kind;

template <>
struct Kind<torch::optim::SGD> {
  using Options = torch::optim::SGDOptions;
  using State = torch::optim::SGDParamState;
  static constexpr const char* kName = "torch::optim::SGD";
  static StateTensors tensors(State& state) { return {&state.momentum_buffer(), nullptr, nullptr}; }
  static unsigned used(const Options& options) { return options.momentum() != 0 ? 1 : 0; }
  static double initial(const Options&) { return 0; }
  static Rule rule(const Options& options, State*, bool first) {
    return SgdRule{.lr = options.lr(),
                   .momentum = options.momentum(),
                   .dampening = options.dampening(),
                   .weight_decay = options.weight_decay(),
                   .nesterov = options.nesterov(),
                   .first = first};
  }
};

// Adam and AdamW.
template <typename OptionsType, typename StateType, bool kDecoupled>
struct AdamKind {
  using Options = OptionsType;
  using State = StateType;
  static StateTensors tensors(State& state) { return {&state.exp_avg(), &state.exp_avg_sq(), &state.max_exp_avg_sq()}; }
  static unsigned used(const Options& options) { return options.amsgrad() ? 7 : 3; }
  static double initial(const Options&) { return 0; }
  static Rule rule(const Options& options, State* state, bool) {
    state->step(state->step() + 1);
    return AdamRule{.lr = options.lr(),
                    .beta1 = std::get<0>(options.betas()),
                    .beta2 = std::get<1>(options.betas()),
                    .eps = options.eps(),
                    .weight_decay = options.weight_decay(),
                    .decoupled = kDecoupled,
                    .amsgrad = options.amsgrad(),
                    .step = state->step()};
  }
};

template <>
struct Kind<torch::optim::Adam> : AdamKind<torch::optim::AdamOptions, torch::optim::AdamParamState, false> {
  static constexpr const char* kName = "torch::optim::Adam";
};
template <>
struct Kind<torch::optim::AdamW> : AdamKind<torch::optim::AdamWOptions, torch::optim::AdamWParamState, true> {
  static constexpr const char* kName = "torch::optim::AdamW";
};

template <>
struct Kind<torch::optim::Adagrad> {
  using Options = torch::optim::AdagradOptions;
  using State = torch::optim::AdagradParamState;
  static constexpr const char* kName = "torch::optim::Adagrad";
  static StateTensors tensors(State& state) { return {&state.sum(), nullptr, nullptr}; }
  static unsigned used(const Options&) { return 1; }
  static double initial(const Options& options) { return options.initial_accumulator_value(); }
  static Rule rule(const Options& options, State* state, bool) {
    state->step(state->step() + 1);
    return AdagradRule{.lr = options.lr(),
                       .lr_decay = options.lr_decay(),
                       .eps = options.eps(),
                       .weight_decay = options.weight_decay(),
                       .step = state->step()};
  }
};

template <>
struct Kind<torch::optim::RMSprop> {
  using Options = torch::optim::RMSpropOptions;
  using State = torch::optim::RMSpropParamState;
  static constexpr const char* kName = "torch::optim::RMSprop";
  static StateTensors tensors(State& state) {
    return {&state.square_avg(), &state.momentum_buffer(), &state.grad_avg()};
  }
  static unsigned used(const Options& options) {
    return 1u | (options.momentum() != 0 ? 2u : 0u) | (options.centered() ? 4u : 0u);
  }
  static double initial(const Options&) { return 0; }
  static Rule rule(const Options& options, State* state, bool) {
    state->step(state->step() + 1);
    return RmspropRule{.lr = options.lr(),
                       .alpha = options.alpha(),
                       .eps = options.eps(),
                       .weight_decay = options.weight_decay(),
                       .momentum = options.momentum(),
                       .centered = options.centered()};
  }
};

template <>
struct Kind<PlainLion> {
  using Options = LionOptions;
  using State = LionParamState;
  static constexpr const char* kName = "lockstep::optim::Lion";
  static StateTensors tensors(State& state) { return {&state.exp_avg(), nullptr, nullptr}; }
  static unsigned used(const Options&) { return 1; }
  static double initial(const Options&) { return 0; }
  static Rule rule(const Options& options, State*, bool) {
    return LionRule{.lr = options.lr(),
                    .beta1 = std::get<0>(options.betas()),
                    .beta2 = std::get<1>(options.betas()),
                    .weight_decay = options.weight_decay()};
  }
};

// The state of an f16 or bf16 parameter. A class of its own, so that code which copies torch's states by their type
// does not take it for one and lose the master weight.
template <typename State>
struct WithMaster : public State {
  explicit WithMaster(const State& state) : State(state) {}
  std::unique_ptr<torch::optim::OptimizerParamState> clone() const override {
    return std::make_unique<WithMaster>(*this);
  }
  at::Tensor master;
};

}  // namespace lockstep::optim::detail
