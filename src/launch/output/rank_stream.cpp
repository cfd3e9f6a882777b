#include "launch/output/rank_stream.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/net/socket.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kTail = std::size_t{8} * 1024;

std::string end_of_file(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0) return {};
  std::string text(std::min<std::size_t>(kTail, static_cast<std::size_t>(info.st_size)), '\0');
  const ssize_t got = ::pread(fd.get(), text.data(), text.size(), info.st_size - static_cast<off_t>(text.size()));
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

}  // namespace

Result<RankStream> RankStream::open(const LogFiles::Route& route, const std::string& folder, int stream) {
  RankStream result;
  result.to_console_ = route.to_console;
  if (route.to_file) {
    auto file = LogFiles::open(folder, stream);
    if (!file.ok()) return file.status();
    result.file_ = *std::move(file);
    result.path_ = folder + (stream == 1 ? "/stdout.log" : "/stderr.log");
    if (!route.to_console) {
      result.write_end_ = std::move(result.file_);
      return result;
    }
  }
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return Status(StatusCode::resource_exhausted,
                  fmt::format("cannot create a pipe for a rank's output: {}; see ulimit -n", errno_text(errno)));
  }
  result.read_end_.reset(ends[0]);
  result.write_end_.reset(ends[1]);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return result;
}

// False if there is nothing more to read now.
bool RankStream::read_some(const std::function<void(std::string_view)>& on_line) {
  std::array<char, std::size_t{64} * 1024> block;
  if (!read_end_.valid()) return false;
  const ssize_t got = ::read(read_end_.get(), block.data(), block.size());
  if (got < 0 && errno == EINTR) return true;
  if (got < 0 && errno == EAGAIN) return false;
  if (got <= 0) {
    read_end_.reset();
    return false;
  }
  const std::string_view bytes(block.data(), static_cast<std::size_t>(got));
  keep(bytes);
  if (to_console_) splitter_.feed(bytes, on_line);
  return true;
}

void RankStream::pump(const std::function<void(std::string_view)>& on_line) { read_some(on_line); }

void RankStream::finish(const std::function<void(std::string_view)>& on_line) {
  // Bounded: a process that left the rank's process group may hold the pipe and write forever.
  for (int i = 0; i < 64 && read_some(on_line); ++i) {
  }
  if (to_console_) splitter_.finish(on_line);
  read_end_.reset();
  file_.reset();
}

void RankStream::keep(std::string_view bytes) {
  tail_.append(bytes);
  if (tail_.size() > 2 * kTail) tail_.erase(0, tail_.size() - kTail);
  while (file_.valid() && !bytes.empty()) {
    const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      file_trouble_ = fmt::format("no longer writing to '{}': {}", path_, errno_text(errno));
      file_.reset();
      return;
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::string RankStream::tail() const {
  if (path_.empty() || to_console_) return tail_.substr(tail_.size() > kTail ? tail_.size() - kTail : 0);
  return end_of_file(path_);
}

}  // namespace lockstep::launch
