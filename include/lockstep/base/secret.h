// The job's secret. Both ends of every store and data connection prove that they have it before the connection is used.
#pragma once

#include <string>
#include <utility>

#include "lockstep/base/status.h"

namespace lockstep {

// The key itself is never sent and never logged. Empty if no secret is set.
class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string key) : key_(std::move(key)) {}
  bool empty() const { return key_.empty(); }
  const std::string& key() const { return key_; }

  // LOCKSTEP_SECRET, or the content of LOCKSTEP_SECRET_FILE (trailing newline removed; a file that
  // other users than its owner can access is refused). Neither: an empty Secret. Both, or an empty
  // value: an error.
  static Result<Secret> from_environment();

 private:
  std::string key_;
};

}  // namespace lockstep
