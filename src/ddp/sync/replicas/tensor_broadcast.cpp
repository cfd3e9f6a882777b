#include "ddp/sync/replicas/tensor_broadcast.h"

#include <algorithm>

namespace lockstep::detail {

namespace {

constexpr std::int64_t kPackBytes = 25 << 20;  // a larger tensor is a pack of its own
constexpr std::size_t kKeptBytes = 4 << 20;    // larger memory is not kept for the next run

std::int64_t count_of(const std::vector<at::Tensor>& tensors) {
  std::int64_t count = 0;
  for (const at::Tensor& tensor : tensors) count += tensor.numel();
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
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
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
           (!pack.flat.defined() || pack.flat.numel() == count_of(pack.tensors));
  });
}

void TensorBroadcast::run(int root) {
  if (group_.size() == 1) return;
  at::NoGradGuard no_grad;
  if (!packs_fit()) make_packs();
  for (Pack& pack : packs_) run(pack, root);
}

void TensorBroadcast::run(Pack& pack, int root) {
  if (!pack.flat.defined()) {
    throw_if_error(group_.check(pack.tensors[0], std::nullopt).with_context("a tensor of the model cannot be sent"));
    pack.flat = group_.empty(count_of(pack.tensors), pack.type, pack.device);
  }
  const auto place = [&pack](std::int64_t offset, const at::Tensor& tensor) {
    return pack.flat.narrow(0, offset, tensor.numel()).view(tensor.sizes());
  };
  std::int64_t offset = 0;
  for (std::size_t i = 0; group_.rank() == root && i < pack.tensors.size(); offset += pack.tensors[i++].numel()) {
    place(offset, pack.tensors[i]).copy_(pack.tensors[i]);
  }
  group_.broadcast(pack.flat, root, {}).wait();
  offset = 0;
  for (std::size_t i = 0; group_.rank() != root && i < pack.tensors.size(); offset += pack.tensors[i++].numel()) {
    pack.tensors[i].copy_(place(offset, pack.tensors[i]));
  }
  if (pack.flat.nbytes() > kKeptBytes) pack.flat = at::Tensor();
}

}  // namespace lockstep::detail
