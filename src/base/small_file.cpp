#include "base/small_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

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

Status create_small_file(const std::string& path, const std::string& content) {
  const std::string temporary = fmt::format("{}.new.{}", path, ::getpid());
  const UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd.valid()) return file_error("write", temporary);
  Status status;
  for (std::size_t written = 0; status.ok() && written < content.size();) {
    const ssize_t got = ::write(fd.get(), content.data() + written, content.size() - written);
    if (got > 0) written += static_cast<std::size_t>(got);
    if (got < 0 && errno != EINTR) status = file_error("write", temporary);
  }
  if (status.ok() && ::link(temporary.c_str(), path.c_str()) != 0) {
    status = errno == EEXIST ? Status(StatusCode::already_exists, path + " exists") : file_error("create", path);
  }
  ::unlink(temporary.c_str());
  return status;
}

Result<std::vector<std::string>> list_folder(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), &::closedir);
  if (!folder) return file_error("list", path);
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(folder.get())) names.emplace_back(entry->d_name);
  return names;
}

}  // namespace lockstep
