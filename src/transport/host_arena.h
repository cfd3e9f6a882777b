// The memory that all ranks of one host map: one piece, in which each rank has its place.
//
//   words | failure | areas | states | payloads | staging memory
//
// What every operation reads is packed, so that it needs few pages, however many ranks there are. Payloads and staging
// memory take memory only once they are used. The same layout serves ranks that are threads of one process.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "lockstep/base/status.h"
#include "transport/shared_area.h"

namespace lockstep {

// Why the group has failed, for all ranks of the host: the first one that records a reason decides.
struct alignas(kCacheLine) SharedFailure {
  static constexpr std::size_t kCapacity = 4096 - 3 * sizeof(std::uint32_t);

  std::atomic<std::uint32_t> stage;  // 0: none, 1: being written, 2: written
  std::uint32_t code;
  std::uint32_t length;
  char text[kCapacity];  // a longer reason is truncated
};

// A view of that memory. Copies refer to the same memory.
class HostArena {
 public:
  HostArena() = default;
  // `memory` keeps the bytes(local_size, group_size) bytes at `data` mapped; zero-filled when created.
  HostArena(std::shared_ptr<const void> memory, std::byte* data, int local_size, int group_size);
  static std::size_t bytes(int local_size, int group_size);

  int local_size() const { return local_size_; }
  int group_size() const { return group_size_; }
  HostWords& words() const { return *words_; }
  SharedArea& area(int local) const { return areas_[local]; }
  // By rank of the group.
  RankState& state(int rank) const { return states_[rank]; }
  // kInlineCapacity bytes.
  std::byte* payload(int local, std::size_t slot) const {
    return payloads_ + (static_cast<std::size_t>(local) * 2 + slot) * kInlineCapacity;
  }
  // kStagingBytes bytes.
  std::byte* staging(int local) const { return staging_ + static_cast<std::size_t>(local) * kStagingBytes; }

  // Thread-safe. Records the reason unless there is one; returns the one that counts.
  Status record_failure(const Status& reason) const;
  std::optional<Status> failure() const;

 private:
  // The reason that another rank is writing now; none if it does not complete it.
  std::optional<Status> wait_for_failure() const;

  std::shared_ptr<const void> memory_;
  int local_size_ = 0;
  int group_size_ = 0;
  HostWords* words_ = nullptr;
  SharedFailure* failure_ = nullptr;
  SharedArea* areas_ = nullptr;
  RankState* states_ = nullptr;
  std::byte* payloads_ = nullptr;
  std::byte* staging_ = nullptr;
};

}  // namespace lockstep
