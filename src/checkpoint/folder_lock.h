// One writer at a time in a folder of snapshots.
//
// A lock of the kernel on the file ".lock" in it: a writer that is killed loses it at once. Its text names the holder.
// A writer that is stopped keeps the lock, perhaps for ever, while its job continues without it in a newer generation.
// So a newer generation of the same job takes the lock over: it puts another file in the place of ".lock". The previous
// holder finds out through is_held(), which it must ask before it changes what others see.
#pragma once

#include <cstdint>
#include <string>

#include "base/unique_fd.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"

namespace lockstep::checkpoint {

// A job and one of its generations; empty for a program that has none.
struct WriterIdentity {
  std::string job = {};
  std::int64_t generation = 0;

  // True for an older generation of the same job than `other`.
  bool is_older_than(const WriterIdentity& other) const {
    return !job.empty() && job == other.job && generation < other.generation;
  }
};

class FolderLock {
 public:
  // Waits for another holder until the deadline; then already_exists, which names it. A holder of an older generation
  // of the same job is given one second to finish; in a job, one that has not signed the lock too. Errors of the disk
  // as file_error() has them.
  static Result<FolderLock> take(const std::string& folder, const WriterIdentity& writer, Deadline deadline);

  FolderLock(FolderLock&&) = default;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

  // already_exists, which names the present holder, if the lock was taken over.
  Status is_held() const;

 private:
  FolderLock(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  UniqueFd fd_;
};

}  // namespace lockstep::checkpoint
