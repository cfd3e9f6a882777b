// The job's secret: what every store and data connection proves to know before it is used.
#pragma once

#include <string>
#include <utility>

#include "lockstep/base/status.h"

namespace lockstep {

// The key itself never travels and is never logged. Empty where no secret is set.
class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string key) : key_(std::move(key)) {}
  bool empty() const { return key_.empty(); }
  const std::string& key() const { return key_; }

  // LOCKSTEP_SECRET, or the content of LOCKSTEP_SECRET_FILE (trailing newline removed; a file to
  // which anybody but its owner has access is refused). Neither: an empty Secret. Both, or an
  // empty value: an error.
  static Result<Secret> from_environment();

 private:
  std::string key_;
};

}  // namespace lockstep
