// The layout of the memory through which ranks of one host communicate. Each rank owns one area, which
// all local ranks map.
//
// An operation starts with an *announcement* by every rank: it writes what it is about to do, and the
// payload if that is small, into one of its two slots, and publishes it by
// storing the slot's ticket. Slots alternate. A rank reuses a slot two announcements later, when
// it has seen the next announcement of every rank, which each made only after it was done with this
// one: so two slots are enough, and no acknowledgement is needed.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

namespace lockstep {

inline constexpr std::size_t kCacheLine = 64;
// The largest payload that travels inside an announcement.
inline constexpr std::size_t kInlineCapacity = std::size_t{32} << 10;
// Payloads up to this size share the cache line of the announcement: one line moves between cores.
inline constexpr std::size_t kSameLinePayload = 32;
// Staging memory of each rank, through which private memory is copied.
inline constexpr std::size_t kStagingBytes = std::size_t{8} << 20;

// Where a buffer is in registered memory. Region 0: it is not in registered memory.
struct MemoryRef {
  std::uint32_t region = 0;
  std::uint64_t offset = 0;
  bool registered() const { return region != 0; }
};

struct alignas(kCacheLine) Announcement {
  std::atomic<std::uint32_t> ticket;  // published last: number of the announcement, from 1
  std::int32_t root;
  std::uint64_t count;
  std::uint64_t sequence;
  std::uint8_t kind, dtype, op, reserved;
  std::uint32_t digest;
  union {
    std::byte small_payload[kSameLinePayload];
    struct {  // if there is no payload inside
      std::uint64_t input_offset, output_offset;
      std::uint32_t input_region, output_region;
    } memory;
  };
  std::byte payload[kInlineCapacity];
};
static_assert(offsetof(Announcement, payload) == kCacheLine, "a small announcement must be one cache line");

// A counter or flag that has its cache line for itself.
struct alignas(kCacheLine) PaddedAtomic {
  std::atomic<std::uint32_t> value;
};

struct SharedArea {
  Announcement slots[2];
  PaddedAtomic inside;     // 1 while the owner runs an operation and may access the others' registered memory
  PaddedAtomic arrived;    // how many times the owner has arrived at a synchronisation point inside operations
  PaddedAtomic processor;  // on which the owner last announced: a hint to waiting ranks; only if oversubscribed

  // Used in the area of local rank 0 only.
  PaddedAtomic bell;      // futex: changed to wake sleeping ranks
  PaddedAtomic sleepers;  // how many ranks sleep or are about to
  PaddedAtomic arrivals;  // all arrivals and announcements of all ranks; only if oversubscribed

  alignas(kCacheLine) cpu_set_t cpus;  // on which the owner may run; written before the group is established
  alignas(4096) std::byte staging[kStagingBytes];
};

}  // namespace lockstep
