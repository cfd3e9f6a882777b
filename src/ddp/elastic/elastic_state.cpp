#include "ddp/elastic/elastic_state.h"

#include <torch/torch.h>
#include <xxhash.h>

#include <span>
#include <utility>

#include "base/codec.h"
#include "base/log.h"
#include "ddp/snapshot/optimizer_hash.h"
#include "ddp/snapshot/state.h"
#include "ddp/sync/replicas/replica_state.h"
#include "ddp/sync/replicas/tensor_broadcast.h"

namespace lockstep::detail {
namespace {

// Elements of each parameter that are compared to see whether it was changed outside of a step. Comparing all would
// cost as much as a copy in every step.
constexpr std::int64_t kProbes = 64;

at::Tensor probe(const at::Tensor& parameter) {
  const at::Tensor flat = parameter.detach().reshape(-1);
  if (flat.numel() <= kProbes) return flat.clone();
  return flat.slice(0, 0, c10::nullopt, flat.numel() / kProbes).clone();
}

checkpoint::Value copy_of(const checkpoint::Value& value) {
  if (const auto* tensor = std::get_if<at::Tensor>(&value)) return tensor->detach().clone();
  return value;
}

std::map<std::string, checkpoint::Value> copy_of(const std::map<std::string, checkpoint::Value>& values) {
  std::map<std::string, checkpoint::Value> copy;
  for (const auto& [name, value] : values) copy.emplace(name, copy_of(value));
  return copy;
}

// Bytes as a tensor, and back: what the group can send.
at::Tensor to_tensor(const std::string& bytes) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
  std::copy(bytes.begin(), bytes.end(), tensor.data_ptr<std::uint8_t>());
  return tensor;
}

std::string to_string(const at::Tensor& tensor) {
  const auto* const data = tensor.data_ptr<std::uint8_t>();
  return {data, data + tensor.numel()};
}

struct Numbers {
  std::int64_t progress = 0;
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  std::optional<DistributedSamplerState> sampler;
};

std::string numbers_to_bytes(const Numbers& numbers) {
  const DistributedSamplerState sampler = numbers.sampler.value_or(DistributedSamplerState{});
  const bool has_sampler = numbers.sampler.has_value();
  ByteWriter writer;
  for (const std::int64_t number :
       {numbers.progress, numbers.step, numbers.epoch, std::int64_t{has_sampler}, sampler.epoch, sampler.seed,
        sampler.dataset_size, sampler.consumed, std::int64_t{sampler.shuffle}}) {
    writer.put(number);
  }
  const Bytes bytes = writer.take();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Numbers numbers_from_bytes(const std::string& bytes) {
  ByteReader reader(std::as_bytes(std::span(bytes.data(), bytes.size())));
  const auto next = [&] { return reader.get<std::int64_t>(); };
  Numbers numbers;
  numbers.progress = next();
  numbers.step = next();
  numbers.epoch = next();
  const bool has_sampler = next() != 0;
  DistributedSamplerState sampler;
  sampler.epoch = next();
  sampler.seed = next();
  sampler.dataset_size = next();
  sampler.consumed = next();
  sampler.shuffle = next() != 0;
  if (has_sampler) numbers.sampler = sampler;
  if (!reader.complete()) throw Error({StatusCode::protocol_error, "the state of another version of Lockstep"});
  return numbers;
}

// A list of names and values in turn, as LibTorch pickles it.
std::string values_to_bytes(const std::map<std::string, checkpoint::Value>& values) {
  c10::impl::GenericList list(c10::AnyType::get());
  for (const auto& [name, value] : values) {
    list.push_back(name);
    std::visit([&](const auto& held) { list.push_back(held); }, value);
  }
  const std::vector<char> bytes = torch::pickle_save(list);
  return {bytes.begin(), bytes.end()};
}

std::map<std::string, checkpoint::Value> values_from_bytes(const std::string& bytes) {
  const c10::IValue loaded = torch::pickle_load(std::vector<char>(bytes.begin(), bytes.end()));
  const auto list = loaded.toList();
  std::map<std::string, checkpoint::Value> values;
  for (std::size_t i = 0; i + 1 < list.size(); i += 2) {
    const std::string name = list.get(i).toStringRef();
    const c10::IValue value = list.get(i + 1);
    if (value.isInt()) values[name] = value.toInt();
    if (value.isDouble()) values[name] = value.toDouble();
    if (value.isString()) values[name] = value.toStringRef();
    if (value.isTensor()) values[name] = value.toTensor();
  }
  return values;
}

std::string broadcast_bytes(ProcessGroup& group, const std::string& bytes, int source) {
  at::Tensor size = at::full({1}, static_cast<std::int64_t>(bytes.size()), at::kLong);
  group.broadcast(size, source, {}).wait();
  if (size.item<std::int64_t>() == 0) return {};
  at::Tensor data = group.rank() == source ? to_tensor(bytes) : at::empty({size.item<std::int64_t>()}, at::kByte);
  group.broadcast(data, source, {}).wait();
  return to_string(data);
}

}  // namespace

ElasticState::ElasticState(checkpoint::State& state, std::int64_t progress) : state_(state), progress_(progress) {
  capture();
}

ElasticState::Small ElasticState::small() const {
  return {.step = state_.step, .epoch = state_.epoch, .sampler = state_.sampler, .values = copy_of(state_.values)};
}

std::vector<at::Tensor> ElasticState::probes() const {
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : state_.model.parameters()) result.push_back(probe(parameter));
  return result;
}

void ElasticState::capture() {
  committed_ = small();
  committed_buffers_.clear();
  for (const at::Tensor& buffer : state_.model.buffers()) committed_buffers_.push_back(buffer.detach().clone());
  probes_ = probes();
}

void ElasticState::make_step(const std::function<void()>& update) {
  if (step_ == Step::made) {
    throw Error({StatusCode::invalid_argument,
                 "Context::step was called twice without a commit() between; to make the steps of several optimizers, "
                 "pass one function that makes all of them"});
  }
  step_ = Step::running;
  update();
  probes_of_step_ = probes();
  step_ = Step::made;
}

void ElasticState::commit_step() {
  if (step_ == Step::none && changed_since(probes_)) {
    throw Error({StatusCode::invalid_argument,
                 "Context::commit: the parameters have changed since the last commit, but not in Context::step. Call "
                 "context.step(optimizer) instead of optimizer.step(): if a rank is lost, the others must know whether "
                 "the step was made"});
  }
  finish_step();
}

void ElasticState::finish_step() {
  step_ = Step::none;
  ++state_.step;
  if (state_.sampler) state_.sampler->consumed += std::exchange(taken_, 0);
  ++progress_;
  capture();
}

void ElasticState::commit_epoch() {
  ++state_.epoch;
  taken_ = 0;
  if (state_.sampler) {
    state_.sampler->epoch = state_.epoch;
    state_.sampler->consumed = 0;
  }
  ++progress_;
  capture();
}

// By bits: a NaN equals itself here.
bool ElasticState::changed_since(const std::vector<at::Tensor>& before) const {
  const std::vector<at::Tensor> now = probes();
  if (now.size() != before.size()) return true;
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i].numel() != before[i].numel()) return true;
    if (now[i].numel() > 0 && !now[i].view(at::kByte).equal(before[i].view(at::kByte))) return true;
  }
  return false;
}

void ElasticState::settle() {
  torch::NoGradGuard no_grad;
  for (at::Tensor& parameter : state_.model.parameters()) parameter.mutable_grad() = at::Tensor();
  if (progress_ < 0) return;
  const Step step = std::exchange(step_, Step::none);
  if (changed_since(step == Step::made ? probes_of_step_ : probes_)) {
    log_warn("the parameters were changed {} since the last commit, so the state of this rank does not count any more",
             step == Step::running ? "in a step that was not finished" : "outside of Context::step");
    forget();
    return;
  }
  if (step == Step::made) {
    finish_step();
    return;
  }
  taken_ = 0;
  state_.step = committed_.step;
  state_.epoch = committed_.epoch;
  state_.sampler = committed_.sampler;
  state_.values = copy_of(committed_.values);
  const std::vector<at::Tensor> buffers = state_.model.buffers();
  for (std::size_t i = 0; i < buffers.size(); ++i) buffers[i].detach().copy_(committed_buffers_[i]);
}

std::vector<at::Tensor> ElasticState::tensors() const {
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : state_.model.parameters()) result.push_back(parameter.detach());
  for (const at::Tensor& buffer : state_.model.buffers()) result.push_back(buffer.detach());
  return result;
}

std::uint64_t ElasticState::hash() const {
  const std::string numbers = numbers_to_bytes({progress_, committed_.step, committed_.epoch, committed_.sampler});
  const std::string values = values_to_bytes(committed_.values);
  std::uint64_t hash = XXH3_64bits(numbers.data(), numbers.size());
  hash = XXH3_64bits_withSeed(values.data(), values.size(), hash);
  for (const at::Tensor& tensor : tensors()) {
    const at::Tensor flat = tensor.cpu().contiguous();
    hash = XXH3_64bits_withSeed(flat.data_ptr(), flat.nbytes(), hash);
  }
  if (!state_.optimizer) return hash;
  const std::uint64_t optimizer = checkpoint::hash_of_optimizer(state_.optimizer->get());
  return XXH3_64bits_withSeed(&optimizer, sizeof(optimizer), hash);
}

void ElasticState::transfer(ProcessGroup& group, int source) {
  torch::NoGradGuard no_grad;
  const bool gives = group.rank() == source;
  std::string numbers, values, optimizer;
  if (gives) {
    numbers = numbers_to_bytes({progress_, committed_.step, committed_.epoch, committed_.sampler});
    values = values_to_bytes(committed_.values);
    if (state_.optimizer) optimizer = checkpoint::optimizer_to_bytes(state_.optimizer->get());
  }
  numbers = broadcast_bytes(group, numbers, source);
  values = broadcast_bytes(group, values, source);
  optimizer = broadcast_bytes(group, optimizer, source);
  const std::vector<at::Tensor> own = tensors();
  std::vector<at::Tensor> received;
  for (const at::Tensor& tensor : own) received.push_back(gives ? tensor : at::empty_like(tensor));
  TensorBroadcast(group, received).run(source);
  // All ranks that get here have everything; only now the previous state is replaced.
  if (gives) return;
  const Numbers theirs = numbers_from_bytes(numbers);
  state_.step = theirs.step;
  state_.epoch = theirs.epoch;
  state_.sampler = theirs.sampler;
  state_.values = values_from_bytes(values);
  for (std::size_t i = 0; i < own.size(); ++i) own[i].copy_(received[i]);
  if (state_.optimizer) checkpoint::optimizer_from_bytes(state_.optimizer->get(), optimizer);
  progress_ = theirs.progress;
  taken_ = 0;
  step_ = Step::none;
  capture();
}

}  // namespace lockstep::detail
