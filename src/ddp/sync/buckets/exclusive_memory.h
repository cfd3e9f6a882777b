// Whether a gradient's memory belongs to that gradient alone.
//
// Autograd's accumulator takes over an incoming gradient if nothing else holds that tensor. It does not check the
// memory below: a view of it, the tensor it is a view of, or another parameter's gradient may share that memory and be
// read or written later in the same backward. So memory is used in place only if every reference to it is accounted
// for; otherwise the gradient is copied.
#pragma once

#include <ATen/ATen.h>

namespace lockstep::detail {

// True if another tensor may share the memory of `gradient`, which is a parameter's .grad, so that writing to it would
// change that tensor too. Other handles to the same gradient do not count: they are meant to see what is written.
// `incoming` is what autograd handed to the accumulator (the post hook's second argument), which is still alive while
// the hook runs; undefined outside of it.
bool shares_memory(const at::Tensor& gradient, const at::Tensor& incoming = {});

// True if autograd has just taken over `incoming` as .grad, and its memory is shared: writing to it would change
// another tensor. If .grad existed before, autograd has added to it, as the program expects of whatever shares its
// memory.
bool took_over_shared_memory(const at::Tensor& gradient, const at::Tensor& incoming);

// True if `gradient` can be changed while backward runs without anything noticing: there is not even another handle.
bool is_exclusive(const at::Tensor& gradient, const at::Tensor& incoming = {});

}  // namespace lockstep::detail
