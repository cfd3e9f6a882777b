#include "ddp/elastic/incoming_state.h"

#include <fmt/format.h>

#include "ddp/snapshot/content.h"

namespace lockstep::detail {

using checkpoint::NamedTensors;
using checkpoint::SafetensorsHead;

IncomingState::IncomingState(checkpoint::State& state, const checkpoint::StateHeader& header, const std::string& where,
                             bool in_place)
    : state_(state), manifest_(header.manifest) {
  at::NoGradGuard no_grad;
  const NamedTensors model = checkpoint::tensors_of_model(state.model);
  throw_if_error(checkpoint::check_fits(model, checkpoint::infos_of_head(header.model), where));
  if (state.optimizer) {
    checkpoint::check_optimizer(manifest_.optimizer, state.optimizer->get(), where);
    if (!header.optimizer) throw Error({StatusCode::mismatch, fmt::format("{} has no optimizer's tensors", where)});
    optimizer_.emplace(state.optimizer->get(), header.optimizer->metadata, checkpoint::infos_of_head(*header.optimizer),
                       where);
  } else if (header.optimizer) {
    throw Error({StatusCode::mismatch, fmt::format("{} has an optimizer, and this program's State has none", where)});
  }
  add(header.model, model, in_place);
  if (optimizer_) add(*header.optimizer, optimizer_->tensors(), true);
  for (const auto& [name, scalar] : manifest_.values) {
    std::visit([this, &name = name](const auto& value) { values_[name] = value; }, scalar);
  }
  if (!header.values) return;
  NamedTensors tensors;
  for (const SafetensorsHead::Entry& entry : header.values->entries) {
    tensors[entry.info.name] = at::empty(entry.info.shape, checkpoint::type_in_torch(entry.info));
    values_[entry.info.name] = tensors[entry.info.name];
  }
  add(*header.values, tensors, true);
}

void IncomingState::add(const SafetensorsHead& head, const NamedTensors& targets, bool in_place) {
  for (const SafetensorsHead::Entry& entry : head.entries) {
    const at::Tensor target = targets.at(entry.info.name).detach();
    const bool direct = in_place && target.is_cpu() && target.is_contiguous();
    parts_.push_back({target, direct ? target : at::empty(target.sizes(), target.options().device(at::kCPU))});
  }
}

std::vector<at::Tensor> IncomingState::buffers() const {
  std::vector<at::Tensor> buffers;
  for (const Part& part : parts_) buffers.push_back(part.buffer);
  return buffers;
}

void IncomingState::install() {
  at::NoGradGuard no_grad;
  for (Part& part : parts_) {
    if (part.buffer.is_same(part.target)) {
      part.target.unsafeGetTensorImpl()->bump_version();  // the bytes arrived behind autograd's back
    } else {
      part.target.copy_(part.buffer);
    }
  }
  if (optimizer_) optimizer_->install();
  state_.step = manifest_.step;
  state_.epoch = manifest_.epoch;
  state_.sampler = manifest_.sampler;
  state_.values = std::move(values_);
}

}  // namespace lockstep::detail
