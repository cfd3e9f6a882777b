// Whether the arguments of a call can be right. Wrong ones throw before anything was issued: the
// group lives on.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/collectives/types.h"

namespace lockstep {

// All throw Error(invalid_argument); `call` names the operation in the message.
void check_reduce_op(std::string_view call, DType dtype, ReduceOp op);
void check_rank(std::string_view call, std::string_view what, int rank, int size);
void check_same_type(std::string_view call, ConstBuffer input, ConstBuffer output);
// `output` must have exactly `expected` elements.
void check_count(std::string_view call, std::string_view what, std::size_t count, std::size_t expected,
                 std::string_view why);
void check_data(std::string_view call, std::string_view what, ConstBuffer data);
// Buffers may be equal or `input` may lie at `allowed_offset` bytes into output (or the reverse);
// any other overlap is refused.
void check_overlap(std::string_view call, ConstBuffer input, ConstBuffer output, const void* allowed_input);

}  // namespace lockstep
