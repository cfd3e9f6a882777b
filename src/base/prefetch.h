// Hints to the memory system.
#pragma once

#include <cstddef>

namespace lockstep {

// Starts to fetch the cache lines of [data, data + bytes) for writing. Never faults; imposes no memory order.
inline void prefetch_for_writing(const void* data, std::size_t bytes) {
  const auto* line = static_cast<const std::byte*>(data);
  for (std::size_t offset = 0; offset < bytes; offset += 64) {
#if defined(__x86_64__)
    // The builtin would fetch for reading on the baseline instruction set; processors without
    // PREFETCHW ignore it.
    asm volatile("prefetchw %0" : : "m"(line[offset]));
#else
    __builtin_prefetch(line + offset, 1);
#endif
  }
}

}  // namespace lockstep
