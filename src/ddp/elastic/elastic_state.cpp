#include "ddp/elastic/elastic_state.h"

#include <fmt/format.h>
#include <torch/torch.h>
#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "checkpoint/state_header.h"
#include "ddp/elastic/incoming_state.h"
#include "ddp/elastic/state_chain.h"
#include "ddp/snapshot/content.h"
#include "ddp/snapshot/state_hash.h"
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

std::uint64_t ElasticState::hash() const {
  checkpoint::Manifest manifest{.step = committed_.step, .epoch = committed_.epoch, .sampler = committed_.sampler};
  checkpoint::NamedTensors values;
  for (const auto& [name, value] : committed_.values) {
    if (const auto* const tensor = std::get_if<at::Tensor>(&value)) values[name] = *tensor;
    if (const auto* const number = std::get_if<std::int64_t>(&value)) manifest.values[name] = *number;
    if (const auto* const number = std::get_if<double>(&value)) manifest.values[name] = *number;
    if (const auto* const text = std::get_if<std::string>(&value)) manifest.values[name] = *text;
  }
  const std::string text = value_or_throw(checkpoint::format_manifest(manifest));
  std::uint64_t hash = XXH3_64bits_withSeed(text.data(), text.size(), static_cast<std::uint64_t>(progress_));
  hash = checkpoint::add_to_hash(hash, values);
  checkpoint::NamedTensors parameters;
  for (const auto& [name, parameter] : state_.model.named_parameters()) parameters[name] = parameter.detach();
  hash = checkpoint::add_to_hash(hash, parameters);
  if (!state_.optimizer) return hash;
  const std::uint64_t optimizer = checkpoint::hash_of_optimizer(state_.optimizer->get());
  return XXH3_64bits_withSeed(&optimizer, sizeof(optimizer), hash);
}

std::uint64_t ElasticState::hash_of_buffers() const {
  checkpoint::NamedTensors buffers;
  for (const auto& [name, buffer] : state_.model.named_buffers()) buffers[name] = buffer.detach();
  return checkpoint::add_to_hash(0, buffers);
}

void ElasticState::take_buffers(ProcessGroup& group, int source) {
  torch::NoGradGuard no_grad;
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : state_.model.buffers()) buffers.push_back(buffer.detach());
  TensorBroadcast(group, buffers).run(source);
  capture();
}

void ElasticState::send(StateChain& chain) const {
  checkpoint::Content content = checkpoint::collect(state_, {}, 1, false);
  content.manifest.job.clear();  // these are of snapshots
  content.manifest.generation = 0;
  checkpoint::StateHeads heads{.model = content.model.head(), .optimizer = std::nullopt, .values = std::nullopt};
  std::vector<at::Tensor> tensors = content.model.tensors_in_order();
  const auto append = [&tensors](const checkpoint::TensorFile& file) {
    const std::vector<at::Tensor> more = file.tensors_in_order();
    tensors.insert(tensors.end(), more.begin(), more.end());
  };
  if (content.optimizer) {
    heads.optimizer = content.optimizer->head();
    append(*content.optimizer);
  }
  if (content.values) {
    heads.values = content.values->head();
    append(*content.values);
  }
  chain.pass(value_or_throw(checkpoint::format_state_header(progress_, content.manifest, heads)),
             checkpoint::kMaxStateHeader);
  chain.pass(tensors);
}

void ElasticState::receive(StateChain& chain, const std::string& where) {
  const Bytes message = chain.pass({}, checkpoint::kMaxStateHeader);
  auto header = checkpoint::parse_state_header(message);
  if (!header.ok()) throw Error(header.status().with_context(where));
  // A process with a state of its own may yet need it: the sender may be lost before all has arrived.
  IncomingState incoming(state_, *header, where, progress_ < 0);
  chain.pass(incoming.buffers());
  incoming.install();
  progress_ = header->progress;
  taken_ = 0;
  step_ = Step::none;
  capture();
}

void ElasticState::transfer(ProcessGroup& group, int source, const std::vector<int>& receivers) {
  torch::NoGradGuard no_grad;
  const bool receives = std::find(receivers.begin(), receivers.end(), group.rank()) != receivers.end();
  if (receivers.empty() || (!receives && group.rank() != source)) return;
  std::vector<int> ranks{source};
  ranks.insert(ranks.end(), receivers.begin(), receivers.end());
  StateChain chain(group, ranks);
  if (!receives) return send(chain);
  receive(chain, fmt::format("the state that rank {} sent", source));
}

}  // namespace lockstep::detail
