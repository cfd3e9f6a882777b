#include "lockstep/ddp/zero_redundancy_optimizer.h"

#include <fmt/format.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <unordered_set>

#include "base/invalid_argument.h"
#include "ddp/elastic/running.h"
#include "ddp/optim/shared_memory.h"
#include "ddp/snapshot/optimizer_state.h"
#include "ddp/sync/replicas/replica_state.h"
#include "ddp/torch_compat.h"
#include "lockstep/ddp/init.h"
#include "lockstep/record/phase.h"

namespace lockstep::detail {

namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;

// Parameters of this size or more are sent in place; smaller ones are packed together, since each broadcast
// has its latency.
constexpr std::size_t kAloneBytes = std::size_t{1} << 18;

constexpr const char* kName = "ZeroRedundancyOptimizer";

at::Tensor state_bytes(const Optimizer& optimizer) {
  const std::string text = checkpoint::optimizer_to_bytes(optimizer);
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.data_ptr(), text.data(), text.size());
  return bytes;
}

void load_bytes(Optimizer& optimizer, const at::Tensor& bytes) {
  checkpoint::optimizer_from_bytes(optimizer, {static_cast<const char*>(bytes.data_ptr()), bytes.nbytes()});
}

// Moves the state of `from`'s parameters, if there is any, to `to`.
void move_state(Optimizer& from, Optimizer& to, const std::vector<OptimizerParamGroup>& groups) {
  for (const OptimizerParamGroup& group : groups) {
    for (const at::Tensor& parameter : group.params()) {
      const auto found = from.state().find(compat::optimizer_state_key(parameter));
      if (found != from.state().end()) to.state()[found->first] = std::move(found->second);
    }
  }
}

}  // namespace

std::vector<int> balance_greedily(std::span<const std::int64_t> sizes, int ranks) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return sizes[a] > sizes[b]; });
  std::vector<std::int64_t> load(static_cast<std::size_t>(ranks), 0);
  std::vector<int> owners(sizes.size());
  for (std::size_t index : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += sizes[index];
    owners[index] = static_cast<int>(least - load.begin());
  }
  return owners;
}

// Parameters of one owner that are sent in one broadcast.
struct ShardedOptimizer::Parcel {
  int owner = 0;
  std::vector<at::Tensor> parameters;
  at::Tensor memory;               // undefined: the one parameter is sent in place
  std::vector<at::Tensor> places;  // views of `memory`, one for each parameter

  at::Tensor pack() const {
    for (std::size_t i = 0; i < places.size(); ++i) places[i].copy_(parameters[i]);
    return to_send();
  }
  at::Tensor to_send() const { return memory.defined() ? memory : parameters[0].detach(); }
  void unpack() const {
    for (std::size_t i = 0; i < places.size(); ++i) parameters[i].copy_(places[i]);
    // Else autograd would not detect that a graph from before the step holds other values now.
    if (!memory.defined()) parameters[0].unsafeGetTensorImpl()->bump_version();
  }
};

ShardedOptimizer::ShardedOptimizer(ParamGroups groups, std::unique_ptr<torch::optim::OptimizerOptions> defaults,
                                   Factory factory, const ZeroOptions& options)
    : Optimizer(std::move(groups), std::move(defaults)),
      group_(group_or_default(options.group)),
      factory_(std::move(factory)) {
  detail::refuse_in_elastic_job(kName);
  std::vector<std::int64_t> sizes;
  std::unordered_set<const void*> seen;
  for (const OptimizerParamGroup& group : param_groups_) {
    for (const at::Tensor& parameter : group.params()) {
      if (!seen.insert(parameter.unsafeGetTensorImpl()).second) {
        throw_invalid_argument(
            kName, fmt::format("parameter {} was given before; each belongs to one group once", sizes.size()));
      }
      throw_if_error(group_->check(parameter, std::nullopt).with_context("ZeroRedundancyOptimizer"));
      sizes.push_back(static_cast<std::int64_t>(parameter.nbytes()));
    }
  }
  if (sizes.empty()) throw_invalid_argument(kName, "there are no parameters");
  check_memory();
  owners_ = balance_greedily(sizes, group_->size());
  local_ = factory_(groups_of(group_->rank()));
  if (group_->size() > 1) make_parcels();
}

// All groups, with the parameters of `rank` only: possibly none.
ShardedOptimizer::ParamGroups ShardedOptimizer::groups_of(int rank) const {
  ParamGroups result;
  std::size_t index = 0;
  for (const OptimizerParamGroup& group : param_groups_) {
    std::vector<at::Tensor> share;
    for (const at::Tensor& parameter : group.params()) {
      if (owners_[index++] == rank) share.push_back(parameter);
    }
    result.emplace_back(std::move(share), group.options().clone());
  }
  return result;
}

std::size_t ShardedOptimizer::parameter_count() const {
  std::size_t count = 0;
  for (const OptimizerParamGroup& group : param_groups_) count += group.params().size();
  return count;
}

void ShardedOptimizer::check_groups() const {
  if (param_groups_.size() == local_->param_groups().size() && parameter_count() == owners_.size()) return;
  throw_invalid_argument(kName,
                         "parameters were added after construction; give all parameter groups to the constructor");
}

std::vector<at::Tensor> ShardedOptimizer::all_parameters() const {
  std::vector<at::Tensor> all;
  for (const OptimizerParamGroup& group : param_groups_)
    all.insert(all.end(), group.params().begin(), group.params().end());
  return all;
}

void ShardedOptimizer::check_memory() const {
  const auto shared = detail::find_shared_memory(all_parameters());
  if (!shared) return;
  throw_invalid_argument(
      kName,
      fmt::format("parameters {} and {} share memory, so that two ranks would update it, each in its own way; give "
                  "one of them only, and let the model use that one twice",
                  shared->first, shared->second));
}

// Each rank updates its share for all of them, by the place in the list.
void ShardedOptimizer::check_same_parameters() {
  if (std::exchange(compared_, true) || group_->size() == 1) return;
  NamedTensors named;
  for (const at::Tensor& parameter : all_parameters())
    named.emplace_back(fmt::format("parameter {}", named.size()), parameter);
  try {
    detail::check_identical(*group_, named, {});
  } catch (const Error& error) {
    throw Error(error.status().with_context(
        "ZeroRedundancyOptimizer: before the first step, all ranks must have the same parameters in the same order"));
  }
}

void ShardedOptimizer::make_parcels() {
  std::map<std::tuple<int, at::ScalarType, std::string>, std::shared_ptr<Parcel>> small;  // device by name
  std::size_t index = 0;
  for (const OptimizerParamGroup& group : param_groups_) {
    for (const at::Tensor& parameter : group.params()) {
      const int owner = owners_[index++];
      if (parameter.nbytes() >= kAloneBytes && parameter.is_contiguous()) {
        parcels_.push_back(std::make_shared<Parcel>(Parcel{owner, {parameter}, {}, {}}));
        continue;
      }
      auto& parcel = small[{owner, parameter.scalar_type(), parameter.device().str()}];
      if (!parcel) parcels_.push_back(parcel = std::make_shared<Parcel>(Parcel{owner, {}, {}, {}}));
      parcel->parameters.push_back(parameter);
    }
  }
  for (const auto& [kind, parcel] : small) {
    std::int64_t count = 0;
    for (const at::Tensor& parameter : parcel->parameters) count += parameter.numel();
    const at::Tensor& first = parcel->parameters[0];
    parcel->memory = group_->empty(count, first.scalar_type(), first.device());
    std::int64_t offset = 0;
    for (const at::Tensor& parameter : parcel->parameters) {
      parcel->places.push_back(parcel->memory.narrow(0, offset, parameter.numel()).view(parameter.sizes()));
      offset += parameter.numel();
    }
  }
}

torch::Tensor ShardedOptimizer::step(LossClosure closure) {
  check_groups();
  check_same_parameters();
  consolidated_.reset();
  torch::Tensor loss;
  if (closure) {
    at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  const Phase phase(PhaseKind::optimizer);
  // The caller changes options (learning rates) in the groups that it sees.
  for (std::size_t i = 0; i < param_groups_.size(); ++i) {
    local_->param_groups()[i].set_options(param_groups_[i].options().clone());
  }
  local_->step();
  exchange_parameters();
  return loss;
}

void ShardedOptimizer::exchange_parameters() {
  at::NoGradGuard no_grad;
  std::vector<Work> works;
  for (const auto& parcel : parcels_) {
    const bool mine = parcel->owner == group_->rank();
    works.push_back(group_->broadcast(mine ? parcel->pack() : parcel->to_send(), parcel->owner, {}));
  }
  for (std::size_t i = 0; i < works.size(); ++i) {
    works[i].wait();
    if (parcels_[i]->owner != group_->rank()) parcels_[i]->unpack();
  }
}

void ShardedOptimizer::consolidate_state_dict(int to) {
  check_groups();
  if (to < 0 || to >= group_->size()) {
    throw_invalid_argument(
        kName, fmt::format("consolidate_state_dict: there is no rank {} in a group of {}", to, group_->size()));
  }
  at::NoGradGuard no_grad;
  consolidated_.reset();
  const bool receives = group_->rank() == to;
  const at::Tensor mine = state_bytes(*local_);
  const at::Tensor length = at::full({1}, mine.numel(), at::kLong);
  const at::Tensor lengths = at::empty({group_->size()}, at::kLong);
  group_->all_gather(length, lengths, {}).wait();
  if (receives) consolidated_ = factory_(param_groups_);
  // One rank after the other: `to` never holds more than one shard twice.
  for (int r = 0; r < group_->size(); ++r) {
    if (group_->rank() == r && !receives) group_->send(mine, to, 0, {}).wait();
    if (!receives) continue;
    at::Tensor bytes = mine;
    if (r != to) {
      bytes = at::empty({lengths[r].item<std::int64_t>()}, at::kByte);
      group_->recv(bytes, r, 0, {}).wait();
    }
    const std::unique_ptr<Optimizer> share = factory_(groups_of(r));
    load_bytes(*share, bytes);
    move_state(*share, *consolidated_, share->param_groups());
  }
}

const Optimizer& ShardedOptimizer::consolidated() const {
  if (!consolidated_) {
    throw Error(
        {StatusCode::not_found,
         fmt::format(
             "{}: {}", kName,
             fmt::format(
                 "save: rank {} holds only its share of the state; call consolidate_state_dict(to) on all ranks "
                 "first, and save on rank `to`",
                 group_->rank()))});
  }
  return *consolidated_;
}

void ShardedOptimizer::save(torch::serialize::OutputArchive& archive) const { consolidated().save(archive); }

void ShardedOptimizer::load(torch::serialize::InputArchive& archive) {
  const std::unique_ptr<Optimizer> whole = make_plain();
  whole->load(archive);
  take_from(*whole);
}

std::unique_ptr<Optimizer> ShardedOptimizer::make_plain() const {
  check_groups();
  return factory_(param_groups_);
}

void ShardedOptimizer::take_from(Optimizer& whole) {
  consolidated_.reset();
  for (std::size_t i = 0; i < param_groups_.size(); ++i) {
    param_groups_[i].set_options(whole.param_groups()[i].options().clone());
  }
  local_ = factory_(groups_of(group_->rank()));
  move_state(whole, *local_, local_->param_groups());
}

}  // namespace lockstep::detail
