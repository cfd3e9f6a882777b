#include "ddp/sync/replicas/tensor_broadcast.h"

#include <algorithm>

namespace lockstep::detail {

namespace {

constexpr std::int64_t kPackBytes = 25 << 20;  // a larger tensor is a pack of its own
constexpr std::size_t kKeptBytes = 4 << 20;    // larger memory is not kept for the next run

// Each element once: expand() repeats them, and LibTorch does not write to such a tensor.
at::Tensor distinct(at::Tensor tensor) {
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.stride(d) == 0 && tensor.size(d) > 1) tensor = tensor.narrow(d, 0, 1);
  }
  return tensor;
}

std::int64_t count_of(const std::vector<at::Tensor>& tensors) {
  std::int64_t count = 0;
  for (const at::Tensor& tensor : tensors) count += distinct(tensor).numel();
  return count;
}

}  // namespace

TensorBroadcast::TensorBroadcast(ProcessGroup& group, const std::vector<at::Tensor>& tensors) : group_(group) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() > 0) tensors_.push_back(tensor);
  }
  make_packs();
}

// Packs in the order in which their type and device first appear: devices have other numbers on other ranks.
void TensorBroadcast::make_packs() {
  packs_.clear();
  for (const at::Tensor& tensor : tensors_) {
    const auto bytes = static_cast<std::int64_t>(distinct(tensor).nbytes());
    const auto pack = std::find_if(packs_.rbegin(), packs_.rend(), [&tensor](const Pack& candidate) {
      return candidate.type == tensor.scalar_type() && candidate.device == tensor.device();
    });
    const bool fits =
        pack != packs_.rend() &&
        count_of(pack->tensors) * static_cast<std::int64_t>(c10::elementSize(pack->type)) + bytes <= kPackBytes;
    if (fits) {
      pack->tensors.push_back(tensor);
    } else {
      packs_.push_back({{tensor}, tensor.scalar_type(), tensor.device(), {}});
    }
  }
}

bool TensorBroadcast::packs_fit() const {
  return std::all_of(packs_.begin(), packs_.end(), [](const Pack& pack) {
    return std::all_of(pack.tensors.begin(), pack.tensors.end(),
                       [&pack](const at::Tensor& tensor) {
                         return tensor.scalar_type() == pack.type && tensor.device() == pack.device;
                       }) &&
           (!pack.flat.defined() ||
            pack.flat.nbytes() == static_cast<std::size_t>(count_of(pack.tensors)) * c10::elementSize(pack.type));
  });
}

void TensorBroadcast::run(int root, Received received) {
  if (group_.size() == 1) return;
  const c10::InferenceMode normal(false);  // what is kept for the next run must not be an inference tensor
  at::NoGradGuard no_grad;
  if (!packs_fit()) make_packs();
  for (Pack& pack : packs_) run(pack, root, received);
}

void TensorBroadcast::run(Pack& pack, int root, Received received) {
  if (!pack.flat.defined()) {
    const auto bytes = static_cast<std::int64_t>(c10::elementSize(pack.type));
    const std::int64_t count = count_of(pack.tensors);
    const bool known = group_.check(pack.tensors[0], std::nullopt).ok();
    pack.flat =
        known ? group_.empty(count, pack.type, pack.device) : group_.empty(count * bytes, at::kByte, pack.device);
    throw_if_error(group_.check(pack.flat, std::nullopt).with_context("a tensor of the model cannot be sent"));
  }
  const at::Tensor values = pack.flat.scalar_type() == pack.type ? pack.flat : pack.flat.view(pack.type);
  // `copy`: from the tensor to its place, or back.
  const auto for_each_place = [&](const auto& copy) {
    std::int64_t offset = 0;
    for (const at::Tensor& whole : pack.tensors) {
      const at::Tensor tensor = distinct(whole);
      copy(tensor, values.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
      offset += tensor.numel();
    }
  };
  const bool sends = group_.rank() == root;
  if (sends) for_each_place([](const at::Tensor& tensor, const at::Tensor& place) { place.copy_(tensor); });
  group_.broadcast(pack.flat, root, {}).wait();
  if (!sends && received == Received::kept) {
    for_each_place([](const at::Tensor& tensor, const at::Tensor& place) { tensor.copy_(place); });
  }
  if (pack.flat.nbytes() > kKeptBytes) pack.flat = at::Tensor();
}

}  // namespace lockstep::detail
