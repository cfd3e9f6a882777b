// What stands behind a RegisteredMemory.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/shared_memory.h"
#include "communicator/group_core.h"

namespace lockstep::detail {

class Registration {
 public:
  // `bytes` of it were asked for; the rest of its last page is nobody's.
  Registration(std::shared_ptr<SharedMemory> memory, std::size_t bytes, const std::shared_ptr<GroupCore>& core)
      : memory_(std::move(memory)), bytes_(bytes), core_(core), segment_(core->publish_memory(memory_)) {}
  ~Registration() {
    // A group that is gone has taken its bookkeeping with it; the memory itself is ours.
    if (const auto core = core_.lock()) core->withdraw_memory(segment_);
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  std::byte* data() const { return memory_->data(); }
  std::size_t size() const { return bytes_; }

 private:
  const std::shared_ptr<SharedMemory> memory_;
  const std::size_t bytes_;
  const std::weak_ptr<GroupCore> core_;
  const std::uint32_t segment_;
};

}  // namespace lockstep::detail
