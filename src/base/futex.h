// Sleeping on an integer in memory that processes share.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep {

// Sleeps while `word` is `expected`, for at most `timeout`. May return early for no reason:
// callers check their condition in a loop.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, std::chrono::nanoseconds timeout);

// Wakes all threads, in any process, that sleep on `word`.
void futex_wake_all(const std::atomic<std::uint32_t>& word);

// One turn of a busy wait.
inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace lockstep
