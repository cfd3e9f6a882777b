#include "communicator/call_checks.h"

#include <fmt/format.h>

#include "base/invalid_argument.h"
#include "lockstep/base/status.h"

namespace lockstep {

void check_reduce_op(std::string_view call, DType dtype, ReduceOp op) {
  const bool bitwise = op == ReduceOp::bit_and || op == ReduceOp::bit_or || op == ReduceOp::bit_xor;
  if (bitwise && !is_integer(dtype)) {
    throw_invalid_argument(call,
                           fmt::format("{} is for integers, but the elements are {}", to_string(op), to_string(dtype)));
  }
}

void check_rank(std::string_view call, std::string_view what, int rank, int size) {
  if (rank < 0 || rank >= size) {
    throw_invalid_argument(call, fmt::format("{} is {}, but the group has ranks 0 to {}", what, rank, size - 1));
  }
}

void check_same_type(std::string_view call, ConstBuffer input, ConstBuffer output) {
  if (input.dtype != output.dtype) {
    throw_invalid_argument(
        call, fmt::format("the input is {}, but the output is {}", to_string(input.dtype), to_string(output.dtype)));
  }
}

void check_count(std::string_view call, std::string_view what, std::size_t count, std::size_t expected,
                 std::string_view why) {
  if (count != expected) {
    throw_invalid_argument(call,
                           fmt::format("the {} has {} elements, but {} are needed ({})", what, count, expected, why));
  }
}

void check_data(std::string_view call, std::string_view what, ConstBuffer data) {
  if (data.data == nullptr && data.count > 0) {
    throw_invalid_argument(call, fmt::format("the {} is a null pointer, but has {} elements", what, data.count));
  }
}

void check_overlap(std::string_view call, ConstBuffer input, ConstBuffer output, const void* allowed_input) {
  const auto* in = static_cast<const std::byte*>(input.data);
  const auto* out = static_cast<const std::byte*>(output.data);
  if (input.bytes() == 0 || output.bytes() == 0 || input.data == allowed_input) return;
  if (in < out + output.bytes() && out < in + input.bytes()) {
    throw_invalid_argument(call, "input and output overlap; they must be disjoint, or in place");
  }
}

}  // namespace lockstep
