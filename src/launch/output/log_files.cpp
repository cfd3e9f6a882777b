#include "launch/output/log_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/net/socket.h"

namespace lockstep::launch {
namespace {

Status cannot_write(const std::string& folder, const std::string& why) {
  return Status(StatusCode::invalid_argument, fmt::format("--log-dir: cannot write to '{}': {}", folder, why));
}

}  // namespace

Result<LogFiles> LogFiles::create(const RunOptions& options, const std::string& run_id, const std::string& temporary) {
  LogFiles files;
  files.several_nodes_ = options.max_nodes > 1;
  files.redirects_ = options.redirects;
  files.tee_ = options.tee;
  files.shown_ = options.shown_local_ranks;
  files.everything_ = options.redirects.empty() && options.tee.empty();
  std::string parent = options.log_dir;
  if (parent.empty()) {
    if (files.everything_) return files;
    parent = temporary + "/lockstep_logs.XXXXXX";
    if (::mkdtemp(parent.data()) == nullptr) return cannot_write(temporary, errno_text(errno));
  }
  std::error_code error;
  const auto absolute = std::filesystem::absolute(parent, error);
  files.root_ = (error ? std::filesystem::path(parent) : absolute.lexically_normal()) / run_id;
  std::filesystem::create_directories(files.root_, error);
  if (error) return cannot_write(parent, error.message());
  // An existing folder may not be writable.
  std::string probe = files.root_ + "/.probe.XXXXXX";
  const UniqueFd fd(::mkostemp(probe.data(), O_CLOEXEC));
  if (!fd.valid()) return cannot_write(parent, errno_text(errno));
  ::unlink(probe.c_str());
  return files;
}

LogFiles::Route LogFiles::route(int local_rank, int stream) const {
  Route route;
  const bool shown = shown_.empty() || std::find(shown_.begin(), shown_.end(), local_rank) != shown_.end();
  route.to_console = shown;
  if (root_.empty()) return route;
  const bool redirected = redirects_.contains(local_rank, stream);
  const bool teed = tee_.contains(local_rank, stream);
  route.to_file = everything_ || redirected || teed;
  route.to_console = shown && (teed || !redirected);
  return route;
}

Result<std::string> LogFiles::folder(int node_rank, int attempt, int local_rank) const {
  if (root_.empty()) return std::string();
  const std::string node = several_nodes_ ? fmt::format("/node_{}", node_rank) : "";
  std::string path = fmt::format("{}{}/attempt_{}/{}", root_, node, attempt, local_rank);
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return cannot_write(path, error.message());
  return path;
}

Result<UniqueFd> LogFiles::open(const std::string& folder, int stream) {
  const std::string path = folder + (stream == 1 ? "/stdout.log" : "/stderr.log");
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!fd.valid()) return cannot_write(path, errno_text(errno));
  return fd;
}

}  // namespace lockstep::launch
