// What each rank publishes in the memory that the ranks of one host share (transport/host_arena.h). Each rank owns one
// area, and one state.
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
};
static_assert(sizeof(Announcement) == kCacheLine, "a small announcement must be one cache line");

// A counter or flag that has its cache line for itself.
struct alignas(kCacheLine) PaddedAtomic {
  std::atomic<std::uint32_t> value;
};

struct SharedArea {
  Announcement slots[2];
  PaddedAtomic inside;     // 1 while the owner runs an operation and may access the others' registered memory
  PaddedAtomic arrived;    // how many times the owner has arrived at a synchronisation point inside operations
  PaddedAtomic processor;  // on which the owner last announced: a hint to waiting ranks; only if oversubscribed

  alignas(kCacheLine) cpu_set_t cpus;  // on which the owner may run; written before the group is established
};

// What all ranks of a host change.
struct HostWords {
  PaddedAtomic bell;      // futex: changed to wake sleeping ranks
  PaddedAtomic sleepers;  // how many ranks sleep or are about to
  PaddedAtomic arrivals;  // all arrivals and announcements of all ranks; only if oversubscribed
};

// How far one rank of the group has come, and whether it lives. Written by the rank itself; for a rank of another host
// by this host's first rank, which hears about it.
struct alignas(kCacheLine) RankState {
  static constexpr std::size_t kWaitingWords = 4;

  std::atomic<std::uint64_t> completed;               // the last collective that it completed
  std::atomic<std::uint64_t> waiting[kWaitingWords];  // the collective that it waits in, if `waits`
  std::atomic<std::uint32_t> waits;
  std::atomic<std::uint32_t> version;  // of `waiting` and `waits`; odd while they are written
  std::atomic<std::uint32_t> left;     // 1: it has left the group, after `completed`
  std::atomic<std::uint32_t> gone;     // 1: its process has ended or is silent; written by any rank
  std::atomic<std::uint32_t> beats;    // counts on while it lives; only ranks of this host
};
static_assert(sizeof(RankState) == kCacheLine);

}  // namespace lockstep
