#include "simulation/files.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lockstep::simulation {

short File::ready() const { return POLLIN | POLLOUT; }

ssize_t File::read(void* data, std::size_t bytes) {
  bytes = std::min(bytes, inode_->data.size() - std::min(offset_, inode_->data.size()));
  std::memcpy(data, inode_->data.data() + offset_, bytes);
  offset_ += bytes;
  return static_cast<ssize_t>(bytes);
}

ssize_t File::write(const void* data, std::size_t bytes) {
  if (host_.disk_full) {
    errno = ENOSPC;
    return -1;
  }
  if (inode_->data.size() < offset_ + bytes) inode_->data.resize(offset_ + bytes);
  std::memcpy(inode_->data.data() + offset_, data, bytes);
  offset_ += bytes;
  return static_cast<ssize_t>(bytes);
}

short EventCounter::ready() const { return static_cast<short>(POLLOUT | (count > 0 ? POLLIN : 0)); }

short ProcessHandle::ready() const { return process_.alive() ? 0 : POLLIN; }

}  // namespace lockstep::simulation
