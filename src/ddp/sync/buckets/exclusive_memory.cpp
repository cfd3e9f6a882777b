#include "ddp/sync/buckets/exclusive_memory.h"

namespace lockstep::detail {

namespace {

bool share_storage(const at::TensorBase& a, const at::TensorBase& b) {
  return a.has_storage() && b.has_storage() && a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl();
}

}  // namespace

bool shares_memory(const at::Tensor& gradient, const at::Tensor& incoming) {
  if (!gradient.has_storage()) return true;
  std::size_t known = 1;  // the gradient itself
  if (incoming.defined() && share_storage(gradient, incoming)) {
    if (incoming.use_count() != 1) return true;
    ++known;
    // A view keeps the tensor that it is a view of alive, which no other tensor may hold besides.
    if (incoming.is_view() && share_storage(gradient, incoming._base())) {
      if (incoming._base().use_count() != 1) return true;
      ++known;
    }
  }
  return static_cast<std::size_t>(gradient.storage().use_count()) != known;
}

bool took_over_shared_memory(const at::Tensor& gradient, const at::Tensor& incoming) {
  return incoming.defined() && share_storage(gradient, incoming) && shares_memory(gradient, incoming);
}

bool is_exclusive(const at::Tensor& gradient, const at::Tensor& incoming) {
  return gradient.use_count() == 1 && !shares_memory(gradient, incoming);
}

}  // namespace lockstep::detail
