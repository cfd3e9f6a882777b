// A private folder that exists as long as the launcher: the roster of an elastic job, and the files of crashed ranks.
#pragma once

#include <string>

#include "lockstep/base/status.h"
#include "rendezvous/environment.h"

namespace lockstep::launch {

// Mode 0700, in XDG_RUNTIME_DIR, TMPDIR or /tmp, the first that can be written to. The destructor removes it; after
// `kill -9` of the launcher its Guard does.
class RuntimeDirectory {
 public:
  static Result<RuntimeDirectory> create(const Environment& environment);
  RuntimeDirectory(RuntimeDirectory&& other) noexcept;
  RuntimeDirectory& operator=(RuntimeDirectory&&) = delete;
  ~RuntimeDirectory();

  const std::string& path() const { return path_; }

 private:
  explicit RuntimeDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace lockstep::launch
