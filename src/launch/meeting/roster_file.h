// The file in which the ranks of an elastic job record their members, for ranks that join later.
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

  // The roster in the file, if it is newer than all that this object has seen.
  std::optional<std::string> take_newer();
  // Writes `roster` to the file if it is newer than what is there.
  Status offer(const std::string& roster);

 private:
  std::string path_;
  std::int64_t newest_ = -1;  // number
  struct Seen {
    std::uint64_t inode = 0;
    std::int64_t time_ns = 0;
    friend bool operator==(const Seen&, const Seen&) = default;
  };
  Seen seen_;  // of the file that was read last
};

}  // namespace lockstep::launch
