#include "checkpoint/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string_view>
#include <thread>

#include "base/host_name.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/random.h"
#include "checkpoint/files.h"

namespace lockstep::checkpoint {
namespace {

using Clock = Deadline::Clock;

constexpr std::chrono::milliseconds kPause{10};
constexpr std::chrono::milliseconds kTakeoverTime{1000};

// The text of a lock: "process 4711 on node7", and in an elastic job a second line, "job 5f0e generation 3".
struct Holder {
  std::string name = "another process";
  WriterIdentity identity = {};
  std::string text = {};
};

WriterIdentity parse_identity(std::string_view line) {
  constexpr std::string_view kJob = "job ", kGeneration = " generation ";
  const std::size_t middle = line.find(kGeneration);
  if (!line.starts_with(kJob) || middle == std::string_view::npos || middle < kJob.size()) return {};
  const std::string_view number = line.substr(middle + kGeneration.size());
  WriterIdentity identity{.job = std::string(line.substr(kJob.size(), middle - kJob.size()))};
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), identity.generation);
  if (error != std::errc() || end != number.data() + number.size()) return {};
  return identity;
}

Holder holder_of(int fd) {
  std::array<char, 400> buffer{};
  const ssize_t size = ::pread(fd, buffer.data(), buffer.size(), 0);
  if (size <= 0) return {};
  Holder holder{.text = std::string(buffer.data(), static_cast<std::size_t>(size))};
  const std::size_t end = holder.text.find('\n');
  holder.name = printable(holder.text.substr(0, end));
  if (end != std::string::npos) holder.identity = parse_identity(std::string_view(holder.text).substr(end + 1));
  return holder;
}

// For the message that others get, and for newer generations. Without space for it, it may fail.
void sign(int fd, const WriterIdentity& writer) {
  std::string text = fmt::format("process {} on {}", ::getpid(), host_name());
  if (!writer.job.empty()) text += fmt::format("\njob {} generation {}", writer.job, writer.generation);
  [[maybe_unused]] const bool signed_it =
      ::ftruncate(fd, 0) == 0 && ::pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
}

bool is_same_file(int fd, const std::string& path) {
  struct stat open {
  }, named{};
  return ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &named) == 0 && open.st_ino == named.st_ino &&
         open.st_dev == named.st_dev;
}

UniqueFd open_lock(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
}

// A locked and signed file in the place of `path`. If this process dies in between, the next writer removes the rest.
Result<UniqueFd> replace(const std::string& folder, const std::string& path, const WriterIdentity& writer) {
  const std::string fresh = fmt::format("{}/.tmp-lock-{}", folder, random_hex(8));
  UniqueFd fd = open_lock(fresh);
  if (!fd.valid()) return file_error(errno, "created", fresh);
  sign(fd.get(), writer);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 && std::rename(fresh.c_str(), path.c_str()) == 0) return fd;
  const int error = errno;
  ::unlink(fresh.c_str());
  return file_error(error, "put in place of the lock", fresh);
}

// Since when the same older generation of the writer's job has held the lock. A holder signs just after it has locked,
// so a text must have been there for a while before it counts. A lock without a text for that long is that of a process
// that was stopped just before it signed, or just before it gave the lock back: it has nothing to lose.
class OlderHolder {
 public:
  bool is_overdue(const Holder& holder, const WriterIdentity& writer) {
    const bool stopped_unsigned = holder.text.empty() && !writer.job.empty();
    if (!stopped_unsigned && !holder.identity.is_older_than(writer)) {
      since_.reset();
      return false;
    }
    if (!since_ || holder.text != text_) {
      since_ = Clock::now();
      text_ = holder.text;
    }
    return Clock::now() - *since_ >= kTakeoverTime;
  }

 private:
  std::optional<Clock::time_point> since_;
  std::string text_;
};

}  // namespace

Result<FolderLock> FolderLock::take(const std::string& folder, const WriterIdentity& writer, Deadline deadline) {
  const std::string path = folder + "/.lock";
  OlderHolder older;
  while (true) {
    UniqueFd fd = open_lock(path);
    if (!fd.valid()) return file_error(errno, "created", path);
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) {
      sign(fd.get(), writer);
      if (is_same_file(fd.get(), path)) return FolderLock(path, std::move(fd));
      continue;  // it was replaced since it was opened
    }
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return file_error(errno, "locked", path);
    const Holder holder = holder_of(fd.get());
    if (older.is_overdue(holder, writer)) {
      const std::string whose = holder.text.empty() ? " that was stopped while it took or left the lock"
                                                    : fmt::format(" of generation {}", holder.identity.generation);
      log_warn("{}{} still locks {}; generation {} takes the lock over", holder.name, whose, folder, writer.generation);
      auto taken = replace(folder, path, writer);
      if (!taken.ok()) return taken.status();
      return FolderLock(path, *std::move(taken));
    }
    if (deadline.expired()) {
      return Status(StatusCode::already_exists,
                    fmt::format("{} is writing to {}; each job needs a folder of its own", holder.name, folder));
    }
    std::this_thread::sleep_for(std::min<Deadline::Duration>(kPause, deadline.remaining()));
  }
}

// A text that outlives its holder would name the wrong one until the next has signed.
FolderLock::~FolderLock() {
  if (fd_.valid()) [[maybe_unused]]
    const int ignored = ::ftruncate(fd_.get(), 0);
}

Status FolderLock::is_held() const {
  if (is_same_file(fd_.get(), path_)) return {};
  const UniqueFd present(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  const Holder holder = present.valid() ? holder_of(present.get()) : Holder{};
  return Status(StatusCode::already_exists,
                fmt::format("{}, of generation {}, has taken over the lock {}: the job continues without this process",
                            holder.name, holder.identity.generation, path_));
}

}  // namespace lockstep::checkpoint
