// The roster of this node (membership/roster.h), for the exchange with other nodes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/status.h"

namespace lockstep::launch {

// Ranks write to the same file (membership/roster.h). Used by one thread.
class RosterFile {
 public:
  explicit RosterFile(std::string path) : path_(std::move(path)) {}

  // The newest roster, if it is newer than all that this object has seen.
  std::optional<std::string> take_newer();
  // Adds `roster` if it is newer than what is there.
  Status offer(const std::string& roster);

 private:
  std::string path_;
  std::int64_t newest_ = 0;  // number
};

}  // namespace lockstep::launch
