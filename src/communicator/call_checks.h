// Checks of the arguments of a call. Invalid ones throw before anything is issued: the
// group stays usable.
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
// `what` has `count` elements and must have exactly `expected`.
void check_count(std::string_view call, std::string_view what, std::size_t count, std::size_t expected,
                 std::string_view why);
void check_data(std::string_view call, std::string_view what, ConstBuffer data);
// Buffers may overlap only if the input begins at `allowed_input`; any other overlap is an error.
void check_overlap(std::string_view call, ConstBuffer input, ConstBuffer output, const void* allowed_input);

}  // namespace lockstep
