// Whether a gradient's memory belongs to that gradient alone.
//
// Autograd's accumulator takes over an incoming gradient if nothing else holds that tensor. It does not look at the
// memory below: a view of it, the tensor it is a view of, or another parameter's gradient may share that memory and be
// read or written later in the same backward. So memory is used in place only if every reference to it is known here;
// otherwise the gradient is copied.
#pragma once

#include <ATen/ATen.h>

namespace lockstep::detail {

// True if `gradient`, which is a parameter's .grad, can be changed while backward runs without any other tensor
// noticing. `incoming` is what autograd handed to the accumulator (the post hook's second argument), which is still
// alive while the hook runs; undefined if there is none.
bool is_exclusive(const at::Tensor& gradient, const at::Tensor& incoming = {});

// True if no other tensor shares `gradient`'s memory, so that writing to it changes nothing else. Other handles to the
// same tensor are allowed: they are meant to see the new values.
bool may_be_overwritten(const at::Tensor& gradient);

}  // namespace lockstep::detail
