#include "ddp/sync/sample_weight.h"

namespace lockstep::detail {

namespace {
thread_local std::weak_ptr<const std::function<double()>> weight_of_thread;
}  // namespace

SampleWeight sample_weight() { return weight_of_thread.lock(); }
void set_sample_weight(const SampleWeight& weight) { weight_of_thread = weight; }

at::Tensor add_weighted(const SampleWeight& weight, const at::Tensor& gradient,
                        const std::function<at::Tensor(const at::Tensor&)>& add) {
  const double share = weight ? (*weight)() : 1;
  if (share == 1) return add(gradient);
  if (share == 0) return add(at::zeros_like(gradient));
  return add(gradient * share) / share;
}

}  // namespace lockstep::detail
