// Anonymous memory that can be passed to other processes as a file descriptor. The kernel frees it
// with its last descriptor and mapping, also after kill -9: nothing to clean up.
#pragma once

#include <cstddef>
#include <memory>

#include "base/unique_fd.h"
#include "lockstep/base/status.h"

namespace lockstep {

// A mapping of shared memory; unmapped when destroyed. Zero-filled when created.
class SharedMemory {
 public:
  // Creates a memfd of `bytes` (rounded up to whole pages), sealed against shrinking so that no
  // peer can make our accesses fault, and maps it. `name` is for /proc/<pid>/maps only.
  static Result<std::unique_ptr<SharedMemory>> create(std::size_t bytes, const char* name);
  // Maps a descriptor that a peer passed. Refuses one that is smaller than `bytes` or not sealed
  // against shrinking.
  static Result<std::unique_ptr<SharedMemory>> map(UniqueFd fd, std::size_t bytes);

  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  int fd() const { return fd_.get(); }
  // Closes the descriptor; the mapping stays.
  void close_fd() { fd_.reset(); }

 private:
  SharedMemory(UniqueFd fd, std::byte* data, std::size_t size) : fd_(std::move(fd)), data_(data), size_(size) {}

  UniqueFd fd_;
  std::byte* data_;
  std::size_t size_;
};

}  // namespace lockstep
