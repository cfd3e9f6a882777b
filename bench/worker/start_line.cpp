#include "bench/worker/start_line.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/unique_fd.h"
#include "bench/worker/channel.h"

namespace lockstep::bench {
namespace {

// Long enough for a rank to see the release and to read its CPU clock.
constexpr std::int64_t kHeadStart = 5'000;
constexpr std::int64_t kTimeout = 120'000'000'000;

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

SharedMapping::SharedMapping(const std::string& path, std::size_t bytes) : bytes_(bytes) {
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  void* const data = fd.valid() ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0) : MAP_FAILED;
  if (data == MAP_FAILED)
    throw BenchError("cannot map the benchmark's shared memory " + path + ": " + std::strerror(errno));
  data_ = static_cast<std::byte*>(data);
}

SharedMapping::~SharedMapping() { ::munmap(data_, bytes_); }

std::int64_t StartLine::arrive() {
  // acquire: partner is the release below; without it a fast rank could arrive for the next round early.
  const std::uint32_t generation = page_.generation.load(std::memory_order_acquire);
  // acq_rel: what every rank wrote before arriving is visible to all after the release.
  if (page_.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<std::uint32_t>(ranks_)) {
    page_.arrived.store(0, std::memory_order_relaxed);  // published by the release of generation
    page_.start.store(now_ns() + (own_core_ ? kHeadStart : 0), std::memory_order_relaxed);  // likewise
    page_.generation.store(generation + 1, std::memory_order_release);  // partner: the acquire in the loop
  } else {
    const std::int64_t give_up = now_ns() + kTimeout;
    for (std::uint32_t spins = 0; page_.generation.load(std::memory_order_acquire) == generation; ++spins) {
      // Even if the rank has its own core: the engine may have threads there that still send to other ranks.
      ::sched_yield();
      if (spins % 4096 == 4095 && now_ns() > give_up)
        throw BenchError("a rank of this engine did not reach the start line within two minutes");
    }
  }
  return page_.start.load(std::memory_order_relaxed);  // ordered by the acquire of generation
}

void StartLine::wait_for(std::int64_t start) {
  while (now_ns() < start) relax();
}

}  // namespace lockstep::bench
