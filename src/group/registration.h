// What stands behind a RegisteredMemory.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/shared_memory.h"
#include "group/group_core.h"

namespace lockstep::detail {

class Registration {
 public:
  Registration(std::shared_ptr<SharedMemory> memory, const std::shared_ptr<GroupCore>& core)
      : memory_(std::move(memory)), core_(core), segment_(core->publish_memory(memory_)) {}
  ~Registration() {
    // A group that is gone has taken its bookkeeping with it; the memory itself is ours.
    if (const auto core = core_.lock()) core->withdraw_memory(segment_);
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  std::byte* data() const { return memory_->data(); }
  std::size_t size() const { return memory_->size(); }

 private:
  const std::shared_ptr<SharedMemory> memory_;
  const std::weak_ptr<GroupCore> core_;
  const std::uint32_t segment_;
};

}  // namespace lockstep::detail
