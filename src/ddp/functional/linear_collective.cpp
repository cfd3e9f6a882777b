#include "ddp/functional/linear_collective.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

namespace lockstep::detail {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Collective = std::shared_ptr<const LinearCollective>;

struct CollectiveCapsule : torch::CustomClassHolder {
  explicit CollectiveCapsule(Collective of_call) : collective(std::move(of_call)) {}
  Collective collective;
};

// The anchor is an empty tensor that requires a gradient: without it, autograd would not record the call on a rank
// whose input does not.
class LinearFunction : public torch::autograd::Function<LinearFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& /*anchor*/,
                            const Collective& collective) {
    context->saved_data["collective"] = c10::IValue::make_capsule(c10::make_intrusive<CollectiveCapsule>(collective));
    return collective->run(input);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto capsule = context->saved_data["collective"].toCapsule();
    const Collective adjoint = static_cast<const CollectiveCapsule&>(*capsule).collective->adjoint();
    return {apply_collective(adjoint, gradients[0]), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor apply_collective(Collective collective, const at::Tensor& input) {
  if (!c10::GradMode::is_enabled()) return collective->run(input);
  const at::Tensor anchor = at::empty({0}, at::kFloat).set_requires_grad(true);
  return LinearFunction::apply(input, anchor, std::move(collective));
}

}  // namespace lockstep::detail
