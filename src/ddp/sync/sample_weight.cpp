#include "ddp/sync/sample_weight.h"

namespace lockstep::detail {

namespace {
thread_local std::weak_ptr<const std::function<double()>> weight_of_thread;
}  // namespace

void set_sample_weight(const SampleWeight& weight) { weight_of_thread = weight; }
SampleWeight sample_weight() { return weight_of_thread.lock(); }

}  // namespace lockstep::detail
