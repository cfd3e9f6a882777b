// A FileStore's file and this process's replica of its content.
//
// Writers hold flock(2) on the file; readers hold nothing, because a record counts only if it is
// complete and its checksum is correct.
//
// If most of the log is out of date, a writer replaces the file by a shorter one of the same id, which has only the
// present keys. Others notice that their file has no name any more, and continue with the one that has.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/unique_fd.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"
#include "store/file/file_record.h"
#include "store/file/file_store.h"
#include "store/store_state.h"

namespace lockstep {

class FileStore::Log {
 public:
  static Result<std::unique_ptr<Log>> open(const std::string& path, const StoreLimits& limits);

  // Runs `change` on a replica that is up to date, while no other process writes; the record that
  // it returns, if any, has the same effect and is appended to the file. Waits for other writers
  // until the deadline. A failure leaves file and replica as they were.
  using ChangeFunction = std::function<Result<std::optional<file_record::Record>>(StoreState&)>;
  Status change(const ChangeFunction& change, Deadline deadline);

  // Runs `look` on a replica that is up to date.
  Status look(const std::function<void(const StoreState&)>& look);

  const std::string& path() const { return path_; }

 private:
  Log(std::string path, UniqueFd fd, const StoreLimits& limits);

  // With mutex_ held.
  Status catch_up();
  Status read_header();
  bool was_replaced() const;
  // Continues with the file that has replaced this one.
  Status follow();
  // Replaces the file, which is locked, if that makes it much shorter. Otherwise, and if it fails, nothing changes.
  void compact();
  // Only the process that has the lock uses this name.
  std::string shorter_name() const { return path_ + ".compact"; }
  // Of a process that died while it replaced the file.
  void remove_leftover();
  // Nothing: another process has the lock, or has just replaced the file.
  std::optional<Status> change_if_unlocked(const ChangeFunction& change);
  Status change_locked(const ChangeFunction& change);
  Status write_at_end(const Bytes& bytes);
  void forget_replica();
  Status failed(StatusCode code, const std::string& what) const;

  const std::string path_;
  const StoreLimits limits_;

  std::mutex mutex_;  // held only while working, never while waiting for other processes
  // Guarded by mutex_.
  UniqueFd fd_;
  UniqueFd successor_;  // replaces fd_ once the lock is released
  std::optional<file_record::FileId> id_;
  std::uint64_t compact_at_;
  bool leftover_removed_ = false;
  std::unique_ptr<StoreState> state_;
  std::uint64_t offset_ = 0;  // the replica has everything before
};

}  // namespace lockstep
