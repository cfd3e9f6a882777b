#include "ddp/sync/buckets/bucket.h"

namespace lockstep::detail {

namespace {

// Not a view in autograd's sense: optimizers may detach_() a gradient, which views do not allow. It shares the storage,
// so that a device's allocator records which streams use its memory.
at::Tensor alias(const at::Tensor& owner, std::int64_t offset, at::IntArrayRef sizes, at::IntArrayRef strides) {
  at::Tensor result = at::empty({0}, owner.options());
  return result.set_(owner.storage(), owner.storage_offset() + offset, sizes, strides);
}

void copy_scaled(const at::Tensor& to, const at::Tensor& from, double scale) {
  if (!from.defined() || scale == 0) {
    to.zero_();
  } else if (scale == 1) {
    if (from.data_ptr() != to.data_ptr()) to.copy_(from);
  } else if (to.element_size() < 4) {
    to.copy_(from.to(at::kFloat).mul_(scale));  // else the factor would be rounded to 16 bits too
  } else {
    at::mul_out(const_cast<at::Tensor&>(to), from, at::scalar_tensor(scale, to.options()));
  }
}

}  // namespace

std::vector<std::int64_t> gradient_strides(const at::Tensor& parameter) {
  if (parameter.is_non_overlapping_and_dense()) return parameter.strides().vec();
  std::vector<std::int64_t> strides(static_cast<std::size_t>(parameter.dim()));
  std::int64_t next = 1;
  for (std::int64_t d = parameter.dim() - 1; d >= 0; --d) {
    strides[static_cast<std::size_t>(d)] = next;
    next *= std::max<std::int64_t>(parameter.size(d), 1);
  }
  return strides;
}

Bucket::Bucket(ProcessGroup& group, std::vector<at::Tensor> parameters, std::vector<Strides> strides, bool alone)
    : group_(group),
      parameters_(std::move(parameters)),
      strides_(std::move(strides)),
      alone_(alone),
      dtype_(parameters_[0].scalar_type()) {
  for (const at::Tensor& parameter : parameters_) count_ += parameter.numel();
  if (alone_) return;
  flat_ = group.empty(count_, dtype_, device());
  std::int64_t offset = 0;
  for (std::size_t slot = 0; slot < parameters_.size(); ++slot) {
    views_.push_back(alias(flat_, offset, parameters_[slot].sizes(), strides_[slot]));
    offset += parameters_[slot].numel();
  }
}

void Bucket::put(std::size_t slot, const at::Tensor& gradient, double scale, Memory memory) {
  if (alone_) adopt(memory == Memory::the_gradients ? gradient : at::Tensor());
  copy_scaled(views_[slot], gradient, scale);
  put_on_.add_current(device());
}

void Bucket::gather_streams() {
  put_on_.block_current(device());
  put_on_.clear();
}

void Bucket::adopt(const at::Tensor& gradient) {
  const at::Tensor& parameter = parameters_[0];
  if (gradient.defined() && gradient.strides() == at::IntArrayRef(strides_[0])) {
    flat_ = alias(gradient, 0, {count_}, {1});
  } else {
    if (!own_.defined()) own_ = group_.empty(count_, dtype_, device());
    flat_ = own_;
  }
  views_ = {alias(flat_, 0, parameter.sizes(), strides_[0])};
}

bool Bucket::in_place(std::size_t slot, const at::Tensor& gradient) const {
  return gradient.defined() && gradient.data_ptr() == views_[slot].data_ptr();
}

bool Bucket::owns(const at::Tensor& gradient) const {
  const at::Tensor& memory = alone_ ? own_ : flat_;
  return memory.defined() && gradient.storage().unsafeGetStorageImpl() == memory.storage().unsafeGetStorageImpl();
}

void Bucket::release() {
  put_on_.clear();
  if (!alone_) return;
  flat_ = at::Tensor();
  views_.clear();
}

GradBucket Bucket::for_hook(std::size_t index, bool is_last) const {
  return {index, is_last, flat_, views_, parameters_};
}

}  // namespace lockstep::detail
