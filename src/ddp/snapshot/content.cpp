#include "ddp/snapshot/content.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "ddp/snapshot/state.h"

namespace lockstep::checkpoint {
namespace {

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.pt";
constexpr const char* kValuesFile = "values.safetensors";
constexpr const char* kRngFile = "rng.safetensors";

std::vector<std::int64_t> group_sizes(const torch::optim::Optimizer& optimizer) {
  std::vector<std::int64_t> sizes;
  for (const auto& group : optimizer.param_groups()) sizes.push_back(static_cast<std::int64_t>(group.params().size()));
  return sizes;
}

NamedTensors rng_tensors(const std::vector<std::string>& states) {
  NamedTensors tensors;
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    at::Tensor tensor = at::empty({static_cast<std::int64_t>(states[rank].size())}, at::kByte);
    std::memcpy(tensor.data_ptr(), states[rank].data(), states[rank].size());
    tensors[std::to_string(rank)] = tensor;
  }
  return tensors;
}

Safetensors parse_file(const Snapshot& snapshot, const char* name) {
  const auto file = snapshot.files.find(name);
  const std::string path = snapshot.path + "/" + name;
  if (file == snapshot.files.end()) {
    throw Error({StatusCode::not_found, fmt::format("{} does not exist in this snapshot", path)});
  }
  auto parsed = parse_safetensors(file->second.span());
  if (!parsed.ok()) throw Error(parsed.status().with_context(path));
  return std::move(*parsed);
}

}  // namespace

void Content::finish() {
  if (optimizer_copy) optimizer = optimizer_copy->to_bytes();
}

std::vector<OutputFile> Content::files() const {
  std::vector<OutputFile> files{model.output(kModelFile)};
  if (optimizer) {
    files.push_back({kOptimizerFile, {std::as_bytes(std::span(optimizer->data(), optimizer->size()))}});
  }
  if (values) files.push_back(values->output(kValuesFile));
  if (rng) files.push_back(rng->output(kRngFile));
  return files;
}

Content collect(const State& state, const std::vector<std::string>& rng_states, int world_size, bool copy,
                Content reuse) {
  Content content;
  content.manifest.step = state.step;
  content.manifest.epoch = state.epoch;
  content.manifest.world_size = world_size;
  content.model = TensorFile::of(tensors_of_model(state.model), copy, std::move(reuse.model));
  if (state.optimizer) {
    content.manifest.optimizer = {optimizer_kind(state.optimizer->get()), group_sizes(state.optimizer->get())};
    if (copy) {
      content.optimizer_copy =
          OptimizerCopy::of(state.optimizer->get(), std::move(reuse.optimizer_copy).value_or(OptimizerCopy()));
    } else {
      content.optimizer = optimizer_to_bytes(state.optimizer->get());
    }
  }
  content.manifest.sampler = state.sampler;
  NamedTensors tensors;
  for (const auto& [name, value] : state.values) {
    if (const auto* const tensor = std::get_if<at::Tensor>(&value)) {
      if (!tensor->defined()) {
        throw Error({StatusCode::invalid_argument, fmt::format("the value \"{}\" is an undefined tensor", name)});
      }
      tensors[name] = *tensor;
    } else if (const auto* const integer = std::get_if<std::int64_t>(&value)) {
      content.manifest.values[name] = *integer;
    } else if (const auto* const number = std::get_if<double>(&value)) {
      content.manifest.values[name] = *number;
    } else {
      content.manifest.values[name] = std::get<std::string>(value);
    }
  }
  if (!tensors.empty()) content.values = TensorFile::of(tensors, copy);
  if (!rng_states.empty()) content.rng = TensorFile::of(rng_tensors(rng_states), false);
  return content;
}

Prepared::Prepared(const State& state, const Snapshot& snapshot, int rank)
    : snapshot_(snapshot), model_(tensors_of_model(state.model)) {
  saved_ = tensors_of_file(parse_file(snapshot, kModelFile));
  throw_if_error(check_fits(model_, saved_, snapshot.path + "/" + kModelFile));
  if (state.optimizer) check_optimizer(state);
  for (const auto& [name, scalar] : snapshot.manifest.values) {
    std::visit([&](const auto& value) { values_[name] = value; }, scalar);
  }
  if (snapshot.files.contains(kValuesFile)) {
    for (const auto& [name, tensor] : tensors_of_file(parse_file(snapshot, kValuesFile)))
      values_[name] = tensor.clone();
  }
  if (state.rng && snapshot.files.contains(kRngFile)) {
    const Safetensors file = parse_file(snapshot, kRngFile);
    const auto found = file.tensors.find(std::to_string(rank));
    if (found != file.tensors.end()) {
      rng_.emplace(reinterpret_cast<const char*>(found->second.data.data()), found->second.data.size());
    }
  }
}

void Prepared::check_optimizer(const State& state) const {
  const auto& saved = snapshot_.manifest.optimizer;
  if (!saved || !snapshot_.files.contains(kOptimizerFile)) {
    throw Error({StatusCode::mismatch, fmt::format("{} holds no optimizer's state; to load the model alone, leave "
                                                   "State::optimizer empty",
                                                   snapshot_.path)});
  }
  const std::string kind = optimizer_kind(state.optimizer->get());
  if (saved->kind != kind) {
    throw Error({StatusCode::mismatch, fmt::format("{} holds the state of a {}, but the program's optimizer is a {}",
                                                   snapshot_.path, saved->kind, kind)});
  }
  const auto sizes = group_sizes(state.optimizer->get());
  if (saved->group_sizes != sizes) {
    throw Error({StatusCode::mismatch,
                 fmt::format("{} holds the state of an optimizer whose parameter groups have [{}] parameters; the "
                             "program's have [{}]",
                             snapshot_.path, fmt::join(saved->group_sizes, ", "), fmt::join(sizes, ", "))});
  }
}

void Prepared::load_optimizer_and_rng(State& state) const {
  if (state.optimizer) optimizer_from_bytes(state.optimizer->get(), snapshot_.files.at(kOptimizerFile).text());
  if (rng_) rng_from_bytes(*rng_);
}

void Prepared::load_rest(State& state) const {
  copy_into(model_, saved_);
  const Manifest& manifest = snapshot_.manifest;
  state.step = manifest.step;
  state.epoch = manifest.epoch;
  state.values = values_;
  state.sampler = manifest.sampler;
}

}  // namespace lockstep::checkpoint
