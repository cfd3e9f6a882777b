#include "lockstep/ddp/model_averaging.h"

#include <fmt/format.h>

#include "lockstep/ddp/collectives.h"

namespace lockstep {

PeriodicModelAverager::PeriodicModelAverager(const ModelAveragerOptions& options)
    : period_(options.period), warmup_steps_(options.warmup_steps), group_(group_or_default(options.group)) {
  if (period_ < 1 || warmup_steps_ < 0) {
    throw Error(
        {StatusCode::invalid_argument,
         fmt::format("PeriodicModelAverager: period is {} and must be 1 or more, warmup_steps is {} and must be "
                     "0 or more",
                     period_, warmup_steps_)});
  }
}

bool PeriodicModelAverager::average_parameters(const std::vector<at::Tensor>& parameters) {
  const std::int64_t step = step_++;
  if (step < warmup_steps_ || (step - warmup_steps_) % period_ != 0) return false;
  std::vector<Work> works;
  works.reserve(parameters.size());
  for (const at::Tensor& parameter : parameters) {
    works.push_back(all_reduce_async(parameter, {.op = ReduceOp::avg, .group = group_}));
  }
  for (const Work& work : works) work.wait();
  return true;
}

}  // namespace lockstep
