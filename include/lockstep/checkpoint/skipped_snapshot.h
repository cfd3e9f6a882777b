// A snapshot that was not loaded, and why.
#pragma once

#include <string>

namespace lockstep::checkpoint {

struct SkippedSnapshot {
  std::string path;
  std::string reason;
};

}  // namespace lockstep::checkpoint
