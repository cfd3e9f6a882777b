// Small files that are read and replaced as a whole.
#pragma once

#include <optional>
#include <string>

#include "lockstep/base/status.h"

namespace lockstep {

// Nothing if there is no such file.
Result<std::optional<std::string>> read_small_file(const std::string& path);
// Readers see the previous content or all of the new one. Writes to "<path>.<pid>" and renames it.
Status replace_small_file(const std::string& path, const std::string& content);

// Waits for other holders of this lock file and creates it if it is missing. Held until destroyed.
class FileLock {
 public:
  static Result<FileLock> acquire(const std::string& path);
  FileLock(FileLock&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace lockstep
