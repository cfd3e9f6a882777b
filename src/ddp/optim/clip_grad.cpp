#include "lockstep/ddp/clip_grad.h"

#include <fmt/format.h>

#include <cmath>

#include "lockstep/ddp/init.h"

namespace lockstep {

namespace {

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad().detach());
  }
  return gradients;
}

at::Tensor total_norm(const std::vector<at::Tensor>& gradients, double norm_type) {
  const bool largest = norm_type == INFINITY;
  std::vector<at::Tensor> norms;
  for (const at::Tensor& gradient : gradients) {
    norms.push_back((largest ? gradient.abs().max() : gradient.norm(norm_type)).to(gradients[0].device()));
  }
  if (norms.size() == 1) return norms[0];
  const at::Tensor all = at::stack(norms);
  return largest ? all.max() : all.norm(norm_type);
}

}  // namespace

double clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm, const ClipGradOptions& options) {
  if (!(max_norm >= 0) || !(options.norm_type > 0)) {
    throw Error({StatusCode::invalid_argument,
                 fmt::format("clip_grad_norm_: max_norm is {} and norm_type {}; max_norm must not be negative, and "
                             "norm_type more than 0",
                             max_norm, options.norm_type)});
  }
  at::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients = gradients_of(parameters);
  if (gradients.empty()) return 0;
  // The caller gets the norm as a number, so it has to wait for the device anyway; the rest happens on the CPU.
  const at::Tensor norm = total_norm(gradients, options.norm_type).cpu();
  if (options.group || is_initialized()) {
    const std::shared_ptr<ProcessGroup> group = group_or_default(options.group);
    if (group->size() > 1) group->broadcast(norm, 0, {}).wait();
  }
  const double value = norm.item().toDouble();
  if (options.error_if_nonfinite && !std::isfinite(value)) {
    throw Error({StatusCode::invalid_argument,
                 fmt::format("clip_grad_norm_: the gradients' norm of order {} is {}, so they cannot be clipped; "
                             "check whether the loss overflows, or skip this step",
                             options.norm_type, value)});
  }
  const at::Tensor factor = (max_norm / (norm + 1e-6)).clamp_max(1.0);
  for (const at::Tensor& gradient : gradients) gradient.mul_(factor);
  return value;
}

}  // namespace lockstep
