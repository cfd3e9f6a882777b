// Durations as numbers, for messages.
#pragma once

#include <chrono>

namespace lockstep {

inline double seconds(std::chrono::nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace lockstep
