#include "launch/process/runtime_directory.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/net/socket.h"

namespace lockstep::launch {

Result<RuntimeDirectory> RuntimeDirectory::create(const Environment& environment) {
  std::string reasons;
  for (const auto& parent :
       {environment("XDG_RUNTIME_DIR"), environment("TMPDIR"), std::optional<std::string>("/tmp")}) {
    if (!parent || !parent->starts_with('/')) continue;
    std::string path = *parent + "/lockstep.XXXXXX";
    if (::mkdtemp(path.data()) != nullptr) return RuntimeDirectory(std::move(path));
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", *parent, errno_text(errno));
  }
  return Status(StatusCode::unavailable, fmt::format("cannot create a temporary folder ({})", reasons));
}

RuntimeDirectory::RuntimeDirectory(RuntimeDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}

RuntimeDirectory::~RuntimeDirectory() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep::launch
