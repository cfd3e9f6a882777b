#include "lockstep/ddp/learning_rate.h"

#include <fmt/format.h>

#include <utility>

#include "ddp/elastic/running.h"
#include "lockstep/base/status.h"

namespace lockstep {

LearningRate::LearningRate(torch::optim::Optimizer& optimizer, Schedule schedule)
    : optimizer_(optimizer), schedule_(std::move(schedule)) {
  if (detail::elastic_runs != 0) {
    throw Error({StatusCode::invalid_argument,
                 "LearningRate: make it before elastic::run, or pass the base rates. When the ranks have changed, the "
                 "optimizer's rates are those of a later step, and differ from rank to rank"});
  }
  add_new_groups();
}

LearningRate::LearningRate(torch::optim::Optimizer& optimizer, Schedule schedule, std::vector<double> base_rates)
    : optimizer_(optimizer), schedule_(std::move(schedule)), base_rates_(std::move(base_rates)) {
  if (base_rates_.size() != optimizer_.param_groups().size()) {
    throw Error({StatusCode::invalid_argument,
                 fmt::format("LearningRate: {} base rates, but the optimizer has {} parameter groups",
                             base_rates_.size(), optimizer_.param_groups().size())});
  }
}

void LearningRate::add_new_groups() {
  const auto& groups = optimizer_.param_groups();
  while (base_rates_.size() < groups.size()) base_rates_.push_back(groups[base_rates_.size()].options().get_lr());
}

void LearningRate::apply(std::int64_t step) {
  add_new_groups();
  const double factor = schedule_(step);
  for (std::size_t i = 0; i < base_rates_.size(); ++i) {
    optimizer_.param_groups()[i].options().set_lr(base_rates_[i] * factor);
  }
}

}  // namespace lockstep
