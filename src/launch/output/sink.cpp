#include "launch/output/sink.h"

#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace lockstep::launch {
namespace {

bool is_regular(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace

Sink::Sink(int fd) : fd_(fd), terminal_(::isatty(fd) == 1), regular_(is_regular(fd)) {}

bool Sink::writable(int timeout_ms) const {
  if (regular_) return true;
  pollfd polled{fd_, POLLOUT, 0};
  return ::poll(&polled, 1, timeout_ms) == 1;  // an error counts as ready: write(2) reports it
}

void Sink::flush() {
  while (has_pending() && !broken_ && writable(0)) {
    // A pipe that is ready takes PIPE_BUF bytes without blocking, not more.
    const std::size_t left = pending_.size() - sent_;
    const std::size_t size = regular_ ? left : std::min<std::size_t>(left, PIPE_BUF);
    const ssize_t written = ::write(fd_, pending_.data() + sent_, size);
    if (written >= 0) {
      sent_ += static_cast<std::size_t>(written);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      broken_ = true;  // closed, or the disk is full: the ranks continue
    }
  }
  if (broken_ || !has_pending()) {
    pending_.clear();
    sent_ = 0;
  } else if (sent_ > kFull) {
    pending_.erase(0, sent_);
    sent_ = 0;
  }
}

void Sink::drain(Deadline deadline) {
  flush();
  while (has_pending() && writable(deadline.poll_timeout_ms())) flush();
}

bool same_file(int a, int b) {
  struct stat first {};
  struct stat second {};
  if (::fstat(a, &first) != 0 || ::fstat(b, &second) != 0) return false;
  return first.st_dev == second.st_dev && first.st_ino == second.st_ino && first.st_rdev == second.st_rdev;
}

}  // namespace lockstep::launch
