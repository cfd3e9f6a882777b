#include "checkpoint/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include "base/host_name.h"
#include "base/printable.h"
#include "checkpoint/files.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::chrono::milliseconds kPause{10};

std::string holder(int fd) {
  std::array<char, 300> text{};
  const ssize_t size = ::pread(fd, text.data(), text.size(), 0);
  return size > 0 ? printable({text.data(), static_cast<std::size_t>(size)}) : "another process";
}

// Only for the message that others get: without space for it, it may fail.
void sign(int fd) {
  const std::string text = fmt::format("process {} on {}", ::getpid(), host_name());
  [[maybe_unused]] const bool signed_it =
      ::ftruncate(fd, 0) == 0 && ::pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
}

}  // namespace

Result<FolderLock> FolderLock::take(const std::string& folder, Deadline deadline) {
  const std::string path = folder + "/.lock";
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd.valid()) return file_error(errno, "created", path);
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return file_error(errno, "locked", path);
    if (deadline.expired()) {
      return Status(StatusCode::already_exists,
                    fmt::format("{} is writing to {}; each job needs a folder of its own", holder(fd.get()), folder));
    }
    std::this_thread::sleep_for(std::min<Deadline::Duration>(kPause, deadline.remaining()));
  }
  sign(fd.get());
  return FolderLock(std::move(fd));
}

}  // namespace lockstep::checkpoint
