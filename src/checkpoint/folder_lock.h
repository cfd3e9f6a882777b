// One writer at a time in a folder of snapshots.
//
// A lock of the kernel on the file ".lock" in it: a writer that is killed loses it at once. Its text names the holder.
#pragma once

#include <string>

#include "base/unique_fd.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"

namespace lockstep::checkpoint {

class FolderLock {
 public:
  // Waits for another holder until the deadline; then already_exists, which names it. Errors of the disk as
  // file_error() has them.
  static Result<FolderLock> take(const std::string& folder, Deadline deadline);

 private:
  explicit FolderLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace lockstep::checkpoint
