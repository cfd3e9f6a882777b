// What a process holds at one moment, as numbers whose growth would be a leak.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep::soak {

// How much a number may grow, for each round and in all; the larger of the two limits counts. Memory is noisy: heaps
// fragment, threads have caches. Numbers of things are not.
struct Column {
  const char* name;
  const char* unit;
  double per_round;
  double in_all;
};

inline constexpr std::array kColumns = {
    Column{"heap in use", "KiB", 1, 256},         // what malloc has handed out
    Column{"anonymous memory", "KiB", 8, 65536},  // also what does not come from malloc
    Column{"shared memory", "KiB", 4, 256},       // this process's part of it
    Column{"descriptors", "", 0, 0},
    Column{"threads", "", 0, 0},
    Column{"shared mappings", "", 0, 0},  // of memfds and other files without a name
};

// In the order of kColumns.
using Usage = std::array<std::int64_t, kColumns.size()>;

// Of this process. Waits up to a second for the counts to fall to those of `before`: a thread that was joined stays
// visible for a moment.
Usage usage_now(const Usage& before);

}  // namespace lockstep::soak
