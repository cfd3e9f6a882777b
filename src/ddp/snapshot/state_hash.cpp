#include "ddp/snapshot/state_hash.h"

#include <xxhash.h>

#include <string>

#include "ddp/snapshot/optimizer_state.h"

namespace lockstep::checkpoint {
namespace {

std::uint64_t add(std::uint64_t hash, const std::string& text) {
  return XXH3_64bits_withSeed(text.data(), text.size(), hash);
}

}  // namespace

std::uint64_t add_to_hash(std::uint64_t hash, const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor flat = tensor.detach().cpu().contiguous();
    hash = add(add(hash, name), describe(flat));
    hash = XXH3_64bits_withSeed(flat.data_ptr(), flat.nbytes(), hash);
  }
  return hash;
}

std::uint64_t hash_of_optimizer(const torch::optim::Optimizer& optimizer) {
  const OptimizerContent content = content_of_optimizer(optimizer);
  std::uint64_t hash = 0;
  for (const auto& [name, value] : content.fields) hash = add(add(hash, name), value);
  return add_to_hash(hash, content.tensors);
}

}  // namespace lockstep::checkpoint
