#include "ddp/exclusive_memory.h"

namespace lockstep::detail {

namespace {

bool share_storage(const at::TensorBase& a, const at::TensorBase& b) {
  return a.has_storage() && b.has_storage() && a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl();
}

}  // namespace

bool is_exclusive(const at::Tensor& gradient, const at::Tensor& incoming) {
  if (!gradient.has_storage() || gradient.use_count() != 1) return false;
  std::size_t known = 1;  // the gradient itself
  if (incoming.defined() && share_storage(gradient, incoming)) {
    if (incoming.use_count() != 1) return false;
    ++known;
    // A view keeps the tensor that it is a view of alive, which no other tensor may hold besides.
    if (incoming.is_view() && share_storage(gradient, incoming._base())) {
      if (incoming._base().use_count() != 1) return false;
      ++known;
    }
  }
  return static_cast<std::size_t>(gradient.storage().use_count()) == known;
}

bool may_be_overwritten(const at::Tensor& gradient) {
  return gradient.has_storage() && gradient.storage().use_count() == 1;
}

}  // namespace lockstep::detail
