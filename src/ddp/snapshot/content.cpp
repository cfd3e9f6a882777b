#include "ddp/snapshot/content.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "base/printable.h"
#include "ddp/elastic/running.h"
#include "ddp/snapshot/rng_state.h"

namespace lockstep::checkpoint {
namespace {

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kOptimizerArchive = "optimizer.pt";  // of format version 1
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

std::vector<OutputFile> Content::files() const {
  std::vector<OutputFile> files{model.output(kModelFile)};
  if (optimizer) files.push_back(optimizer->output(kOptimizerFile));
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
  const detail::JobGeneration generation = detail::present_generation();
  content.manifest.job = generation.job;
  content.manifest.generation = generation.number;
  content.model = TensorFile::of(tensors_of_model(state.model), copy, std::move(reuse.model));
  if (state.optimizer) {
    content.manifest.optimizer = {optimizer_kind(state.optimizer->get()), group_sizes(state.optimizer->get())};
    const OptimizerContent optimizer = content_of_optimizer(state.optimizer->get());
    content.optimizer =
        TensorFile::of(optimizer.tensors, copy, std::move(reuse.optimizer).value_or(TensorFile()), optimizer.fields);
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
  if (state.optimizer) prepare_optimizer(state.optimizer->get());
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

void check_optimizer(const std::optional<OptimizerRecord>& saved, const torch::optim::Optimizer& optimizer,
                     const std::string& where) {
  if (!saved) {
    throw Error({StatusCode::mismatch, fmt::format("{} holds no optimizer's state; to load the model alone, leave "
                                                   "State::optimizer empty",
                                                   where)});
  }
  const std::string kind = optimizer_kind(optimizer);
  if (saved->kind != kind) {
    throw Error({StatusCode::mismatch, fmt::format("{} holds the state of a {}, but the program's optimizer is a {}",
                                                   where, printable(saved->kind), kind)});
  }
  const auto sizes = group_sizes(optimizer);
  if (saved->group_sizes != sizes) {
    throw Error({StatusCode::mismatch,
                 fmt::format("{} holds the state of an optimizer whose parameter groups have [{}] parameters; the "
                             "program's have [{}]",
                             where, fmt::join(saved->group_sizes, ", "), fmt::join(sizes, ", "))});
  }
}

void Prepared::prepare_optimizer(torch::optim::Optimizer& optimizer) {
  check_optimizer(snapshot_.manifest.optimizer, optimizer, snapshot_.path);
  if (snapshot_.files.contains(kOptimizerArchive)) {
    throw Error({StatusCode::mismatch,
                 fmt::format("{} was written by Lockstep {}, which kept the optimizer's state in a torch archive. This "
                             "version does not read it, because reading an archive can execute what is in it. Resume "
                             "with the model alone (leave State::optimizer empty), or continue with Lockstep {}",
                             snapshot_.path, snapshot_.manifest.lockstep, snapshot_.manifest.lockstep)});
  }
  const Safetensors file = parse_file(snapshot_, kOptimizerFile);
  optimizer_.emplace(optimizer, file.metadata, infos_of_file(file), snapshot_.path + "/" + kOptimizerFile);
  copy_into(optimizer_->tensors(), tensors_of_file(file));
}

void Prepared::load_rng() const {
  if (rng_) rng_from_bytes(*rng_);
}

void Prepared::load_rest(State& state) {
  copy_into(model_, saved_);
  if (optimizer_) optimizer_->install();
  const Manifest& manifest = snapshot_.manifest;
  state.step = manifest.step;
  state.epoch = manifest.epoch;
  state.values = values_;
  state.sampler = manifest.sampler;
}

}  // namespace lockstep::checkpoint
