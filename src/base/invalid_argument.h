// The error of a call with invalid arguments.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/base/status.h"

namespace lockstep {

// Throws Error(invalid_argument): "where: why". `where` is the class or call that the user wrote.
[[noreturn]] inline void throw_invalid_argument(std::string_view where, std::string_view why) {
  throw Error(Status(StatusCode::invalid_argument, std::string(where).append(": ").append(why)));
}

}  // namespace lockstep
