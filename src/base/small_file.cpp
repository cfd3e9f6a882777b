#include "base/small_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/net/socket.h"
#include "base/unique_fd.h"

namespace lockstep {
namespace {

Status file_error(const char* what, const std::string& path) {
  return Status(StatusCode::unavailable, fmt::format("cannot {} {}: {}", what, path, errno_text(errno)));
}

}  // namespace

Result<std::optional<std::string>> read_small_file(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    if (errno == ENOENT) return std::optional<std::string>();
    return file_error("read", path);
  }
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof(buffer));
    if (got > 0) text.append(buffer, static_cast<std::size_t>(got));
    if (got == 0) return std::optional<std::string>(std::move(text));
    if (got < 0 && errno != EINTR) return file_error("read", path);
  }
}

Status replace_small_file(const std::string& path, const std::string& content) {
  const std::string temporary = fmt::format("{}.{}", path, ::getpid());
  const UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd.valid()) return file_error("write", temporary);
  std::size_t written = 0;
  while (written < content.size()) {
    const ssize_t got = ::write(fd.get(), content.data() + written, content.size() - written);
    if (got > 0) written += static_cast<std::size_t>(got);
    if (got < 0 && errno != EINTR) {
      const Status failed = file_error("write", temporary);
      ::unlink(temporary.c_str());
      return failed;
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) return file_error("replace", path);
  return {};
}

Result<FileLock> FileLock::acquire(const std::string& path) {
  FileLock lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (lock.fd_ < 0) return file_error("open the lock", path);
  while (::flock(lock.fd_, LOCK_EX) != 0) {
    if (errno != EINTR) return file_error("lock", path);
  }
  return lock;
}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace lockstep
