#include "ddp/snapshot/optimizer_hash.h"

#include <torch/serialize.h>
#include <xxhash.h>

#include <string>
#include <typeinfo>

#include "ddp/snapshot/optimizer_tensors.h"
#include "ddp/torch_compat.h"

namespace lockstep::checkpoint {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamState;

std::uint64_t add(std::uint64_t hash, const void* data, std::size_t bytes) {
  return XXH3_64bits_withSeed(data, bytes, hash);
}

std::uint64_t add(std::uint64_t hash, const at::Tensor& tensor) {
  if (!tensor.defined()) return hash;
  const at::Tensor flat = tensor.detach().cpu().contiguous();
  return add(hash, flat.data_ptr(), flat.nbytes());
}

template <typename Record>
std::uint64_t add_archive(std::uint64_t hash, const Record& record) {
  torch::serialize::OutputArchive archive;
  record.serialize(archive);
  std::string bytes;
  archive.save_to([&](const void* data, std::size_t size) {
    bytes.append(static_cast<const char*>(data), size);
    return size;
  });
  return add(hash, bytes.data(), bytes.size());
}

// Changes `hash` if `state` is of this kind.
template <typename ParamState>
bool add_as(std::uint64_t& hash, const OptimizerParamState& state) {
  if (typeid(state) != typeid(ParamState)) return false;
  ParamState copy(static_cast<const ParamState&>(state));  // shares the tensors
  const std::int64_t steps = steps_in(copy);
  hash = add(hash, &steps, sizeof(steps));
  for (const at::Tensor* const tensor : tensors_in(copy)) hash = add(hash, *tensor);
  return true;
}

std::uint64_t add_state(std::uint64_t hash, const OptimizerParamState& state) {
  using namespace torch::optim;
  const bool known = add_as<SGDParamState>(hash, state) || add_as<AdamParamState>(hash, state) ||
                     add_as<AdamWParamState>(hash, state) || add_as<RMSpropParamState>(hash, state) ||
                     add_as<AdagradParamState>(hash, state);
  return known ? hash : add_archive(hash, state);
}

}  // namespace

std::uint64_t hash_of_optimizer(const Optimizer& optimizer) {
  std::uint64_t hash = 0;
  for (const auto& group : optimizer.param_groups()) {
    if (group.has_options()) hash = add_archive(hash, group.options());
    for (const at::Tensor& parameter : group.params()) {
      const auto found = optimizer.state().find(compat::optimizer_state_key(parameter));
      hash = found == optimizer.state().end() ? add(hash, "none", 4) : add_state(hash, *found->second);
    }
  }
  return hash;
}

}  // namespace lockstep::checkpoint
