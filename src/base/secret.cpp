#include "lockstep/base/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "base/net/socket.h"
#include "base/unique_fd.h"

namespace lockstep {
namespace {

constexpr std::size_t kMaxSecretBytes = 4096;

Status refuse(const std::string& path, std::string_view why) {
  return Status(StatusCode::invalid_argument, fmt::format("LOCKSTEP_SECRET_FILE={}: {}", path, why));
}

Result<Secret> read_secret(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return refuse(path, fmt::format("cannot open the file: {}", errno_text(errno)));
  // The open file is checked, not the name, so that the file cannot be replaced in between.
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return refuse(path, errno_text(errno));
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return refuse(path, fmt::format("its mode is {:04o}: users other than its owner have access to it; run chmod 600",
                                    info.st_mode & 07777U));
  }
  std::string key(kMaxSecretBytes + 1, '\0');
  std::size_t size = 0;
  while (size < key.size()) {
    const ssize_t got = ::read(fd.get(), key.data() + size, key.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return refuse(path, fmt::format("cannot read the file: {}", errno_text(errno)));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > kMaxSecretBytes) return refuse(path, fmt::format("longer than {} bytes", kMaxSecretBytes));
  key.resize(size);
  if (key.ends_with('\n')) key.pop_back();
  if (key.ends_with('\r')) key.pop_back();
  if (key.empty()) return refuse(path, "the file is empty; write the job's secret to it");
  return Secret(std::move(key));
}

}  // namespace

Result<Secret> Secret::from_environment() {
  const char* value = std::getenv("LOCKSTEP_SECRET");
  const char* path = std::getenv("LOCKSTEP_SECRET_FILE");
  if (value != nullptr && path != nullptr) {
    return Status(StatusCode::invalid_argument,
                  "both LOCKSTEP_SECRET and LOCKSTEP_SECRET_FILE are set; set one of them");
  }
  if (path != nullptr) return read_secret(path);
  if (value == nullptr) return Secret();
  if (*value == '\0') {
    return Status(StatusCode::invalid_argument,
                  "LOCKSTEP_SECRET is set but empty; set it to a value, or unset it to run without a secret");
  }
  return Secret(value);
}

}  // namespace lockstep
