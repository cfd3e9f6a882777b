// The implementation of RegisteredMemory.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/shared_memory.h"
#include "communicator/group_core.h"

namespace lockstep::detail {

class Registration {
 public:
  // The user asked for `bytes` of it; the rest of its last page is unused.
  Registration(std::shared_ptr<SharedMemory> memory, std::size_t bytes, const std::shared_ptr<GroupCore>& core)
      : memory_(std::move(memory)), bytes_(bytes), core_(core), region_(core->publish_region(memory_)) {}
  ~Registration() {
    // If the group is already destroyed, so is its list of regions; the memory itself is ours.
    if (const auto core = core_.lock()) core->withdraw_region(region_);
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  std::byte* data() const { return memory_->data(); }
  std::size_t size() const { return bytes_; }

 private:
  const std::shared_ptr<SharedMemory> memory_;
  const std::size_t bytes_;
  const std::weak_ptr<GroupCore> core_;
  const std::uint32_t region_;
};

}  // namespace lockstep::detail
