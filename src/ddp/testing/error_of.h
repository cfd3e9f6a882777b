// For tests: what a call throws.
#pragma once

#include <functional>
#include <string>

#include "lockstep/base/status.h"

namespace lockstep::testing {

// The message of the Error that `call` throws, or "(no error)".
inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

}  // namespace lockstep::testing
