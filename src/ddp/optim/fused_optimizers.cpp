#include "lockstep/ddp/fused_optimizers.h"

#include <fmt/format.h>
#include <torch/serialize/archive.h>

#include <unordered_set>
#include <utility>

#include "ddp/optim/fused_kinds.h"
#include "ddp/optim/step_plan.h"
#include "ddp/torch_compat.h"
#include "lockstep/base/status.h"
#include "lockstep/record/phase.h"

namespace lockstep::optim {
namespace {

using detail::Kind;
using detail::StateTensors;
using detail::WithMaster;
using torch::optim::Optimizer;

// The state of a parameter; null if there is none yet.
template <typename Plain>
typename Kind<Plain>::State* find_state(Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(compat::optimizer_state_key(parameter));
  return found == optimizer.state().end() ? nullptr : static_cast<typename Kind<Plain>::State*>(found->second.get());
}

// States of torch::optim have the type of the parameter: those of f16 and bf16 are converted.
void check_state(const at::Tensor& parameter, const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  const bool fits = tensor.scalar_type() == detail::state_type(parameter) ||
                    (detail::needs_master(parameter) && tensor.scalar_type() == parameter.scalar_type());
  if (fits && tensor.is_cpu() && tensor.sizes() == parameter.sizes()) return;
  throw Error({StatusCode::invalid_argument,
               fmt::format("optim: a parameter of shape {} and type {} has optimizer state of shape {} and type {} on "
                           "{}: the parameter was converted, or the state is another one's. Make a new optimizer after "
                           "converting a model",
                           c10::str(parameter.sizes()), c10::toString(parameter.scalar_type()),
                           c10::str(tensor.sizes()), c10::toString(tensor.scalar_type()), tensor.device().str())});
}

template <typename Plain>
void check_states(Optimizer& optimizer, const at::Tensor& parameter) {
  auto* const state = find_state<Plain>(optimizer, parameter);
  if (state == nullptr) return;
  for (const at::Tensor* tensor : Kind<Plain>::tensors(*state)) {
    if (tensor != nullptr) check_state(parameter, *tensor);
  }
}

at::Tensor make_state(const at::Tensor& parameter, double value) {
  const at::Tensor state =
      at::empty_like(parameter, parameter.options().dtype(detail::state_type(parameter)).requires_grad(false));
  return value == 0 ? at::Tensor(state).zero_() : at::Tensor(state).fill_(value);
}

template <typename Plain>
WithMaster<typename Kind<Plain>::State>& add_master(Optimizer& optimizer, const at::Tensor& parameter) {
  using State = typename Kind<Plain>::State;
  auto& slot = optimizer.state()[compat::optimizer_state_key(parameter)];
  auto* with_master = dynamic_cast<WithMaster<State>*>(slot.get());
  if (with_master == nullptr) {
    auto made = std::make_unique<WithMaster<State>>(slot ? static_cast<const State&>(*slot) : State());
    with_master = made.get();
    slot = std::move(made);
  }
  return *with_master;
}

// The state and the rule of one parameter in this step.
template <typename Plain>
void prepare_parameter(Optimizer& optimizer, const typename Kind<Plain>::Options& options, detail::StepPlan& plan,
                       std::size_t index) {
  using State = typename Kind<Plain>::State;
  const at::Tensor& parameter = plan.parameter(index);
  const unsigned used = Kind<Plain>::used(options);
  State* state = find_state<Plain>(optimizer, parameter);
  at::Tensor master;
  if (detail::needs_master(parameter)) {
    auto& with_master = add_master<Plain>(optimizer, parameter);
    if (!with_master.master.defined()) with_master.master = parameter.detach().to(at::kFloat);
    master = with_master.master;
    state = &with_master;
  } else if (state == nullptr && used != 0) {
    auto made = std::make_unique<State>();
    state = made.get();
    optimizer.state()[compat::optimizer_state_key(parameter)] = std::move(made);
  }
  std::array<at::Tensor, kMaxStates> states;
  bool first = false;
  if (state != nullptr) {
    const StateTensors tensors = Kind<Plain>::tensors(*state);
    first = used != 0 && !tensors[0]->defined();
    for (std::size_t k = 0; k < kMaxStates; ++k) {
      if ((used >> k & 1) == 0) continue;
      at::Tensor& tensor = *tensors[k];
      if (!tensor.defined()) tensor = make_state(parameter, Kind<Plain>::initial(options));
      if (tensor.scalar_type() != detail::state_type(parameter)) tensor = tensor.to(detail::state_type(parameter));
      states[k] = tensor;
    }
  }
  plan.set(index, Kind<Plain>::rule(options, state, first), states, master);
}

// Calls visit(index over all groups, parameter) for each.
template <typename Visit>
void for_each_parameter(const Optimizer& optimizer, Visit visit) {
  std::size_t index = 0;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) visit(index++, parameter);
  }
}

std::string master_key(std::size_t index) { return fmt::format("master_weights/{}", index); }

}  // namespace

template <typename Plain>
torch::Tensor Fused<Plain>::step(LossClosure closure) {
  torch::Tensor loss;
  if (closure != nullptr) {
    const at::AutoGradMode with_grad(true);
    loss = closure();
  }
  const Phase phase(PhaseKind::optimizer);
  const at::NoGradGuard no_grad;
  detail::StepPlan plan;
  std::vector<const typename Kind<Plain>::Options*> options;
  std::unordered_set<const void*> seen;
  for (auto& group : this->param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      if (!seen.insert(parameter.unsafeGetTensorImpl()).second) {
        throw Error({StatusCode::invalid_argument,
                     fmt::format("optim: a parameter of shape {} is twice in the optimizer's groups; pass it once",
                                 c10::str(parameter.sizes()))});
      }
      plan.add(parameter);
      check_states<Plain>(*this, parameter);
      options.push_back(static_cast<const typename Kind<Plain>::Options*>(&group.options()));
    }
  }
  last_step_ = plan.prepare(step_options_);
  if (last_step_.skipped) return loss;
  for (std::size_t i = 0; i < plan.size(); ++i) prepare_parameter<Plain>(*this, *options[i], plan, i);
  plan.run();
  return loss;
}

template <typename Plain>
void Fused<Plain>::save(torch::serialize::OutputArchive& archive) const {
  Plain::save(archive);
  for_each_parameter(*this, [&](std::size_t index, const at::Tensor& parameter) {
    const auto found = this->state().find(compat::optimizer_state_key(parameter));
    if (found == this->state().end()) return;
    const auto* const state = dynamic_cast<const WithMaster<typename Kind<Plain>::State>*>(found->second.get());
    if (state != nullptr && state->master.defined()) archive.write(master_key(index), state->master);
  });
}

template <typename Plain>
void Fused<Plain>::load(torch::serialize::InputArchive& archive) {
  Plain::load(archive);
  for_each_parameter(*this, [&](std::size_t index, const at::Tensor& parameter) {
    at::Tensor master;
    if (!detail::needs_master(parameter) || !archive.try_read(master_key(index), master)) return;
    TORCH_CHECK(master.sizes() == parameter.sizes() && master.scalar_type() == at::kFloat,
                "the master weight of parameter ", index, " has shape ", master.sizes(), ", the parameter ",
                parameter.sizes());
    add_master<Plain>(*this, parameter).master = master;
  });
}

template <typename Plain>
std::string Fused<Plain>::state_kind() const {
  return Kind<Plain>::kName;
}

template class Fused<torch::optim::SGD>;
template class Fused<torch::optim::Adam>;
template class Fused<torch::optim::AdamW>;
template class Fused<torch::optim::Adagrad>;
template class Fused<torch::optim::RMSprop>;
template class Fused<PlainLion>;

}  // namespace lockstep::optim
