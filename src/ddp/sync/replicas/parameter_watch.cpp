#include "ddp/sync/replicas/parameter_watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::detail {

namespace {

[[noreturn]] void refuse(const char* kind, const std::string& name, const std::string& change) {
  throw Error(
      {StatusCode::invalid_argument,
       fmt::format("DistributedDataParallel: {} \"{}\" {} since DDP was created, so DDP can no longer keep it equal on "
                   "all ranks. Change the model before wrapping it, or make a new DistributedDataParallel on all "
                   "ranks after the change",
                   kind, name, change)});
}

void check_list(const char* kind, const NamedTensors& now, const NamedTensors& before) {
  for (std::size_t i = 0; i < now.size() || i < before.size(); ++i) {
    if (i >= before.size()) refuse(kind, now[i].first, "was added");
    if (i >= now.size()) refuse(kind, before[i].first, "was removed");
    if (now[i].second.unsafeGetTensorImpl() == before[i].second.unsafeGetTensorImpl()) continue;
    if (now[i].first == before[i].first) refuse(kind, now[i].first, "was replaced by another tensor");
    refuse(kind, now[i].first, fmt::format("took the place of \"{}\"", before[i].first));
  }
}

}  // namespace

ParameterWatch::ParameterWatch(NamedTensors parameters, NamedTensors buffers)
    : parameters_(std::move(parameters)), buffers_(std::move(buffers)) {
  for (const auto& [name, parameter] : parameters_) {
    expected_.push_back(
        {parameter.sizes().vec(), parameter.scalar_type(), parameter.device(), !parameter.requires_grad()});
  }
}

bool ParameterWatch::check() const {
  std::size_t trained = 0, frozen = 0, first_frozen = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, parameter] = parameters_[i];
    const Expected& before = expected_[i];
    if (parameter.scalar_type() != before.type) {
      refuse("parameter", name,
             fmt::format("changed its type from {} to {}", c10::toString(before.type),
                         c10::toString(parameter.scalar_type())));
    }
    if (parameter.device() != before.device) {
      refuse("parameter", name, fmt::format("moved from {} to {}", before.device.str(), parameter.device().str()));
    }
    if (parameter.sizes() != at::IntArrayRef(before.sizes)) {
      refuse("parameter", name,
             fmt::format("changed its shape from [{}] to [{}]", fmt::join(before.sizes, ", "),
                         fmt::join(parameter.sizes().begin(), parameter.sizes().end(), ", ")));
    }
    if (before.frozen) {
      if (parameter.requires_grad()) refuse("parameter", name, "was unfrozen (requires_grad was switched on)");
      continue;
    }
    ++trained;
    if (!parameter.requires_grad() && frozen++ == 0) first_frozen = i;
  }
  if (frozen > 0 && frozen < trained) {
    refuse("parameter", parameters_[first_frozen].first, "was frozen (requires_grad was switched off)");
  }
  return frozen == 0;
}

void ParameterWatch::check_same(const NamedTensors& parameters, const NamedTensors& buffers) const {
  check_list("parameter", parameters, parameters_);
  check_list("buffer", buffers, buffers_);
}

}  // namespace lockstep::detail
