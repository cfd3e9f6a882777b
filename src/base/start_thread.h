// Threads that may not be started: where the limit of threads is reached, std::thread throws std::system_error, which
// is no error of this library, and ends the process if it passes threads that are not joined yet.
#pragma once

#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/status.h"

namespace lockstep {

// "cannot start the thread that `purpose`: ..., raise ...". Pure.
Status no_thread(std::string_view purpose, int error);

// resource_exhausted: the system refuses it.
template <typename Function>
Result<std::thread> start_thread(std::string_view purpose, Function&& function) {
  try {
    return std::thread(std::forward<Function>(function));
  } catch (const std::system_error& error) {
    return no_thread(purpose, error.code().value());
  }
}

}  // namespace lockstep
