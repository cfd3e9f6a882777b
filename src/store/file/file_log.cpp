#include "store/file/file_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "base/net/socket.h"
#include "base/random.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kLogReadBytes = std::size_t{1} << 20;
// Shorter logs are never replaced.
constexpr std::uint64_t kLongLogBytes = std::uint64_t{256} << 10;
constexpr std::uint64_t kGrowthBeforeCompaction = 4;
constexpr std::chrono::microseconds kFirstLockPause = 100us;
constexpr std::chrono::microseconds kLongestLockPause = 5ms;

// Appends up to `wanted` bytes of the file from `offset`; fewer only at its end.
Status read_at(int fd, std::uint64_t offset, std::size_t wanted, Bytes& out) {
  const std::size_t begin = out.size();
  out.resize(begin + wanted);
  std::size_t size = 0;
  while (size < wanted) {
    const ssize_t got = ::pread(fd, out.data() + begin + size, wanted - size, static_cast<off_t>(offset + size));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status(StatusCode::unavailable, fmt::format("cannot be read: {}", errno_text(errno)));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  out.resize(begin + size);
  return {};
}

class FileLock {
 public:
  explicit FileLock(int fd) : fd_(fd), held_(::flock(fd, LOCK_EX | LOCK_NB) == 0) {}
  ~FileLock() {
    if (held_) ::flock(fd_, LOCK_UN);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  bool held() const { return held_; }

 private:
  const int fd_;
  const bool held_;
};

}  // namespace

FileStore::Log::Log(std::string path, UniqueFd fd, const StoreLimits& limits)
    : path_(std::move(path)),
      limits_(limits),
      fd_(std::move(fd)),
      compact_at_(kLongLogBytes),
      state_(std::make_unique<StoreState>(limits)) {}

Status FileStore::Log::failed(StatusCode code, const std::string& what) const {
  return Status(code, fmt::format("the store in {} {}", path_, what));
}

namespace {

Result<UniqueFd> open_file(const std::string& path, int flags) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | flags, 0600));
  if (!fd.valid()) {
    return Status(StatusCode::unavailable,
                  fmt::format("the store in {} cannot be opened: {}; its directory must exist and be writable", path,
                              errno_text(errno)));
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return Status(StatusCode::invalid_argument, fmt::format("{} is not a file; a store needs one", path));
  }
  // What another user can write, another user can forge.
  if ((info.st_uid != ::geteuid() && info.st_uid != 0) || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Status(
        StatusCode::invalid_argument,
        fmt::format("the store in {} belongs to uid {} and has mode {:o}; it must belong to this user (uid {}) "
                    "or to root, and only its owner may be able to write to it. Delete it, or choose another "
                    "file",
                    path, info.st_uid, info.st_mode & 07777, ::geteuid()));
  }
  return fd;
}

Status write_all_at(int fd, std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(put));
      offset += static_cast<std::uint64_t>(put);
    } else if (errno != EINTR) {
      return Status(StatusCode::unavailable, fmt::format("cannot be written: {}", errno_text(errno)));
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<FileStore::Log>> FileStore::Log::open(const std::string& path, const StoreLimits& limits) {
  auto fd = open_file(path, O_CREAT);
  if (!fd.ok()) return fd.status();
  std::unique_ptr<Log> log(new Log(path, *std::move(fd), limits));
  LOCKSTEP_RETURN_IF_ERROR(log->look([](const StoreState&) {}));
  return log;
}

void FileStore::Log::forget_replica() {
  state_ = std::make_unique<StoreState>(limits_);
  offset_ = 0;
}

Status FileStore::Log::read_header() {
  Bytes header;
  if (const Status status = read_at(fd_.get(), 0, file_record::kFileHeaderBytes, header); !status.ok()) {
    return failed(status.code(), status.message());
  }
  LOCKSTEP_RETURN_IF_ERROR(file_record::check_file_header(header).with_context(path_));
  if (header.size() < file_record::kFileHeaderBytes) return {};
  const auto id = file_record::parse_file_id(header);
  if (id_ && *id_ != id) return failed(StatusCode::unavailable, "was deleted while in use");
  id_ = id;
  offset_ = header.size();
  return {};
}

// Its file has no name any more. A network file system can also report that it no longer exists (ESTALE).
bool FileStore::Log::was_replaced() const {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) return errno == ESTALE;
  return info.st_nlink == 0;
}

Status FileStore::Log::follow() {
  auto fd = open_file(path_, 0);
  if (!fd.ok()) return failed(StatusCode::unavailable, "was deleted while in use");
  fd_ = *std::move(fd);
  compact_at_ = kLongLogBytes;
  forget_replica();
  return {};
}

Status FileStore::Log::catch_up() {
  if (was_replaced()) LOCKSTEP_RETURN_IF_ERROR(follow());
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) return failed(StatusCode::unavailable, errno_text(errno));
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size < offset_) return failed(StatusCode::unavailable, "was truncated by something else while in use");
  if (offset_ == 0) LOCKSTEP_RETURN_IF_ERROR(read_header());
  if (offset_ == 0) return {};
  Bytes buffer;
  while (offset_ + buffer.size() < size) {
    const std::size_t before = buffer.size();
    const std::size_t wanted = std::min<std::uint64_t>(kLogReadBytes, size - offset_ - before);
    if (const Status status = read_at(fd_.get(), offset_ + before, wanted, buffer); !status.ok()) {
      return failed(status.code(), status.message());
    }
    if (buffer.size() == before) break;  // a writer has just truncated an unfinished record
    std::size_t used = 0;
    while (const auto parsed = file_record::parse_record(std::span(buffer).subspan(used))) {
      LOCKSTEP_RETURN_IF_ERROR(file_record::apply(parsed->record, *state_).with_context(path_));
      used += parsed->bytes;
      offset_ += parsed->bytes;
    }
    buffer.erase(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(used));
  }
  return {};
}

Status FileStore::Log::look(const std::function<void(const StoreState&)>& look) {
  const std::lock_guard lock(mutex_);
  LOCKSTEP_RETURN_IF_ERROR(catch_up());
  look(*state_);
  return {};
}

Status FileStore::Log::change(const ChangeFunction& change, Deadline deadline) {
  std::chrono::microseconds pause = kFirstLockPause;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      std::optional<Status> result = change_if_unlocked(change);
      if (successor_.valid()) fd_ = std::move(successor_);
      if (result) return *std::move(result);
    }
    if (deadline.expired()) {
      return failed(StatusCode::timed_out, "stayed locked by another process until the deadline");
    }
    std::this_thread::sleep_for(std::min<Deadline::Duration>(pause, deadline.remaining()));
    pause = std::min(2 * pause, kLongestLockPause);
  }
}

std::optional<Status> FileStore::Log::change_if_unlocked(const ChangeFunction& change) {
  if (was_replaced()) {
    if (Status followed = follow(); !followed.ok()) return followed;
  }
  const FileLock file_lock(fd_.get());
  if (!file_lock.held()) return std::nullopt;
  // Another process may have replaced the file before this one locked it.
  if (was_replaced()) return std::nullopt;
  remove_leftover();
  return change_locked(change);
}

Status FileStore::Log::change_locked(const ChangeFunction& change) {
  LOCKSTEP_RETURN_IF_ERROR(catch_up());
  const auto record = change(*state_);
  if (!record.ok()) return record.status();
  if (!record->has_value()) return {};
  Bytes bytes = file_record::format_record(**record);
  if (offset_ == 0) {
    if (!id_) fill_random(id_.emplace());
    Bytes header = file_record::format_file_header(*id_);
    header.insert(header.end(), bytes.begin(), bytes.end());
    bytes = std::move(header);
  }
  const Status written = write_at_end(bytes);
  // The replica already has a change that is not in the file.
  if (!written.ok()) {
    forget_replica();
  } else if (offset_ >= compact_at_) {
    compact();
  }
  return written;
}

void FileStore::Log::remove_leftover() {
  if (!std::exchange(leftover_removed_, true)) ::unlink(shorter_name().c_str());
}

void FileStore::Log::compact() {
  compact_at_ = kGrowthBeforeCompaction * offset_;  // if it does not become shorter
  Bytes bytes = file_record::format_file_header(*id_);
  for (const auto& [key, value] : state_->list("")) {
    const Bytes record = file_record::format_record({file_record::Change::set, key, value});
    bytes.insert(bytes.end(), record.begin(), record.end());
  }
  if (bytes.size() > offset_ / 2) return;
  struct stat info {};
  // A file of another user, or with several names, cannot be replaced by one that is as good.
  if (::fstat(fd_.get(), &info) != 0 || info.st_nlink != 1 || info.st_uid != ::geteuid()) return;
  const std::string name = shorter_name();
  ::unlink(name.c_str());  // of a process that died here
  UniqueFd shorter(::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!shorter.valid()) return;
  if (::fchmod(shorter.get(), info.st_mode & 07777) != 0 || !write_all_at(shorter.get(), 0, bytes).ok() ||
      ::rename(name.c_str(), path_.c_str()) != 0) {
    ::unlink(name.c_str());
    return;
  }
  successor_ = std::move(shorter);
  offset_ = bytes.size();
  compact_at_ = std::max(kLongLogBytes, kGrowthBeforeCompaction * offset_);
}

Status FileStore::Log::write_at_end(const Bytes& bytes) {
  // Bytes after offset_ while the lock is held are a record that a crash left unfinished.
  Status status;
  if (::ftruncate(fd_.get(), static_cast<off_t>(offset_)) != 0)
    status = failed(StatusCode::unavailable, errno_text(errno));
  if (status.ok()) {
    if (const Status written = write_all_at(fd_.get(), offset_, bytes); !written.ok()) {
      status = failed(written.code(), written.message());
    }
  }
  if (status.ok()) {
    offset_ += bytes.size();
  } else {
    // Even if this fails, all readers ignore an unfinished record.
    [[maybe_unused]] const int ignored = ::ftruncate(fd_.get(), static_cast<off_t>(offset_));
  }
  return status;
}

}  // namespace lockstep
