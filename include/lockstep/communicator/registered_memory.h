// Memory that peers on the same host can read and write in place.
#pragma once

#include <cstddef>
#include <memory>

namespace lockstep {

namespace detail {
class Registration;
}

// Created by Communicator::allocate; page-aligned and zero-filled. A collective finds it by address:
// pass any pointer inside it. Destroying it releases the memory on this rank; peers drop their
// mappings later, never while they use them. May outlive its group, as plain memory.
//
// When an operation has failed here, peers have left it too and no longer access its buffers. The
// exception is a peer that was stopped (SIGSTOP) in the middle of it, which may still write when it
// continues.
class RegisteredMemory {
 public:
  explicit RegisteredMemory(std::shared_ptr<detail::Registration> registration);
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::shared_ptr<detail::Registration> registration_;
  std::byte* data_;
  std::size_t size_;
};

}  // namespace lockstep
