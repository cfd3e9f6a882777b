// Finds the tensors in the arguments and results of forward().
//
// Supported: tensors, optional, vector, array, pair, tuple, map, c10::Dict, IValue and any nesting of these;
// numbers and strings contain none. To support a struct of your own, write a function beside it:
//   template <typename F> void for_each_tensor(const MyOutput& output, F&& visit) { visit(output.logits); }
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>

#include <array>
#include <cstdint>
#include <optional>
#include <ranges>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

namespace detail {
template <typename T>
concept TupleLike = requires {
  std::tuple_size<std::remove_cvref_t<T>>::value;
};
template <typename T>
concept OptionalLike = requires(const T& value) {
  value.has_value();
  *value;
};

// A type of the program with a for_each_tensor() of its own. The function here hides those of Lockstep.
namespace own_visitor {
struct Ignore {
  void operator()(const at::Tensor& tensor) const;
};
void for_each_tensor() = delete;
template <typename T>
concept Exists = requires(const T& value) {
  for_each_tensor(value, Ignore());
};
}  // namespace own_visitor

// Whether for_each_tensor() finds the tensors in a T.
template <typename T>
constexpr bool can_be_searched();
template <typename T, std::size_t... I>
constexpr bool elements_can_be_searched(std::index_sequence<I...>) {
  return (can_be_searched<std::remove_cvref_t<std::tuple_element_t<I, T>>>() && ...);
}
template <typename T>
constexpr bool can_be_searched() {
  if constexpr (std::is_base_of_v<at::Tensor, T> || std::is_same_v<T, c10::IValue> || std::is_arithmetic_v<T> ||
                std::is_enum_v<T> || std::is_convertible_v<T, std::string_view>) {
    return true;
  } else if constexpr (std::ranges::range<const T>) {
    using Element = std::remove_cvref_t<std::ranges::range_reference_t<const T>>;
    if constexpr (requires(const Element& element) { element.value(); } && !OptionalLike<Element>) {
      return can_be_searched<std::remove_cvref_t<decltype(std::declval<const Element&>().value())>>();
    } else {
      return can_be_searched<Element>();
    }
  } else if constexpr (TupleLike<T>) {
    return elements_can_be_searched<T>(std::make_index_sequence<std::tuple_size_v<T>>());
  } else if constexpr (OptionalLike<T>) {
    return can_be_searched<std::remove_cvref_t<decltype(*std::declval<const T&>())>>();
  } else {
    return own_visitor::Exists<T>;
  }
}

template <typename F>
void visit_ivalue(const c10::IValue& value, F&& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements()) visit_ivalue(element, visit);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) visit_ivalue(element, visit);
  } else if (value.isGenericDict()) {
    for (const auto& item : value.toGenericDict()) visit_ivalue(item.value(), visit);
  }
}
}  // namespace detail

// Calls `visit(const at::Tensor&)` for every defined tensor in `value`, always in the same order.
template <typename T, typename F>
void for_each_tensor(const T& value, F&& visit) {
  if constexpr (std::is_base_of_v<at::Tensor, T>) {
    if (value.defined()) visit(value);
  } else if constexpr (std::is_same_v<T, c10::IValue>) {
    detail::visit_ivalue(value, visit);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_convertible_v<T, std::string_view>) {
    // No tensors here.
  } else if constexpr (std::ranges::range<T>) {
    for (const auto& element : value) {
      if constexpr (requires { element.value(); }) {  // c10::Dict, torch::OrderedDict
        for_each_tensor(element.value(), visit);
      } else {
        for_each_tensor(element, visit);
      }
    }
  } else if constexpr (detail::TupleLike<T>) {  // a map's elements are pairs
    std::apply([&](const auto&... elements) { (for_each_tensor(elements, visit), ...); }, value);
  } else if constexpr (detail::OptionalLike<T>) {
    if (value.has_value()) for_each_tensor(*value, visit);
  } else {
    static_assert(std::is_arithmetic_v<T>,
                  "DistributedDataParallel cannot find the tensors in this type: write a function "
                  "for_each_tensor(const Type&, visit) beside it (see lockstep/ddp/output_tensors.h)");
  }
}

// The first dimension of the first tensor in the arguments; -1 if there is none, or if a type in which it cannot be
// found comes before it.
template <typename... Inputs>
std::int64_t sample_count(const Inputs&... inputs) {
  std::int64_t count = -1;
  bool known = true;
  [[maybe_unused]] const auto look_at = [&count, &known](const auto& input) {
    if constexpr (detail::can_be_searched<std::remove_cvref_t<decltype(input)>>()) {
      for_each_tensor(input, [&count, &known](const at::Tensor& tensor) {
        if (known && count < 0 && tensor.dim() > 0) count = tensor.size(0);
      });
    } else if (count < 0) {
      known = false;
    }
  };
  (look_at(inputs), ...);
  return count;
}

}  // namespace lockstep
