#include "elastic/roster.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "base/net/socket.h"
#include "base/unique_fd.h"

namespace lockstep::elastic {
namespace {

constexpr const char* kRunning = "running";
constexpr const char* kFinished = "finished";

Status cannot(const char* what, const std::string& path) {
  return Status(StatusCode::unavailable, fmt::format("cannot {} the roster {}: {}", what, path, errno_text(errno)));
}

}  // namespace

std::string format(const Roster& roster) {
  return fmt::format("{}\n{}\n{}\n", roster.generation.number, roster.finished ? kFinished : kRunning,
                     format(roster.generation));
}

Result<Roster> parse_roster(std::string_view text) {
  std::istringstream lines{std::string(text)};
  std::string number, state, generation;
  std::getline(lines, number);
  std::getline(lines, state);
  std::getline(lines, generation);
  if (state != kRunning && state != kFinished) {
    return Status(StatusCode::protocol_error, fmt::format("not a roster: its second line is '{:.20}'", state));
  }
  auto parsed = parse_generation(generation);
  if (!parsed.ok()) return parsed.status();
  return Roster{.generation = *std::move(parsed), .finished = state == kFinished};
}

Result<Roster> read_roster(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return errno == ENOENT ? Result<Roster>(Roster{}) : cannot("read", path);
  std::ostringstream text;
  text << file.rdbuf();
  return parse_roster(text.str());
}

Status write_roster(const std::string& path, const Roster& roster) {
  const std::string lock_path = path + ".lock";
  const UniqueFd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock.valid()) return cannot("lock", path);
  while (::flock(lock.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return cannot("lock", path);
  }
  const auto present = read_roster(path);
  // A roster that cannot be read is replaced.
  const bool is_newer =
      present.ok() &&
      (present->generation.number > roster.generation.number ||
       (present->generation.number == roster.generation.number && present->finished && !roster.finished));
  if (is_newer) return {};
  const std::string temporary = fmt::format("{}.{}", path, ::getpid());
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file << format(roster);
    file.close();
    if (!file) return cannot("write", temporary);
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) return cannot("replace", path);
  return {};
}

}  // namespace lockstep::elastic
