#include "ddp/functional/linear_collective.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "ddp/group/operation_label.h"
#include "ddp/sync/sample_weight.h"

namespace lockstep::detail {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Collective = std::shared_ptr<const LinearCollective>;

struct CollectiveCapsule : torch::CustomClassHolder {
  CollectiveCapsule(Collective of_call, int of_ranks)
      : collective(std::move(of_call)), weight(sample_weight()), number(of_ranks) {}
  Collective collective;
  SampleWeight weight;  // null: 1
  int number;           // of the call, the same on all ranks
};

// The anchor is an empty tensor that requires a gradient: without it, autograd would not record the call on a rank
// whose input does not.
class LinearFunction : public torch::autograd::Function<LinearFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& /*anchor*/,
                            const Collective& collective, int number) {
    context->saved_data["collective"] =
        c10::IValue::make_capsule(c10::make_intrusive<CollectiveCapsule>(collective, number));
    return collective->run(input);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto held = context->saved_data["collective"].toCapsule();
    const auto& call = static_cast<const CollectiveCapsule&>(*held);
    // Ranks whose losses use the results of different calls must not exchange their gradients.
    const OperationLabel label(call.number);
    const at::Tensor input_gradient = add_weighted(call.weight, gradients[0], [&](const at::Tensor& gradient) {
      return apply_collective(call.collective->adjoint(), gradient);
    });
    return {input_gradient, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor apply_collective(Collective collective, const at::Tensor& input) {
  const int number = collective->number_of_call();
  if (!c10::GradMode::is_enabled()) return collective->run(input);
  const at::Tensor anchor = at::empty({0}, at::kFloat).set_requires_grad(true);
  return LinearFunction::apply(input, anchor, std::move(collective), number);
}

}  // namespace lockstep::detail
