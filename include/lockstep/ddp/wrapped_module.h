// How DistributedDataParallel calls the module that it wraps: a holder, a pointer, or a TorchScript module.
#pragma once

#include <ATen/core/ivalue.h>

#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/ddp/model_view.h"

namespace lockstep::detail {

template <typename M>
inline constexpr bool kIsTorchScript = std::is_same_v<std::remove_const_t<M>, torch::jit::Module>;

// A pointer to the module.
template <typename M>
auto* module_in(M& held) {
  if constexpr (kIsTorchScript<M>) {
    return &held;
  } else if constexpr (std::is_pointer_v<M>) {
    return held;
  } else {
    return held.operator->();
  }
}

// TorchScript's forward takes its arguments as a list, which may also be passed as one.
template <typename M, typename... Inputs>
auto call_forward(M& held, Inputs&&... inputs) {
  if constexpr (!kIsTorchScript<M>) {
    return module_in(held)->forward(std::forward<Inputs>(inputs)...);
  } else if constexpr ((std::is_same_v<std::remove_cvref_t<Inputs>, std::vector<c10::IValue>> && ...)) {
    return held.forward(std::forward<Inputs>(inputs)...);
  } else {
    return held.forward(std::vector<c10::IValue>{c10::IValue(std::forward<Inputs>(inputs))...});
  }
}

// torch::nn has vectors of tensors, TorchScript lists that find them while they are iterated over.
template <typename Tensors>
std::vector<at::Tensor> as_vector(Tensors&& tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) result.push_back(tensor);
  return result;
}

}  // namespace lockstep::detail
