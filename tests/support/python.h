// A Python with PyTorch, for tests that compare with it.
#pragma once

#include <cstdlib>
#include <string>

namespace lockstep::testing {

// LOCKSTEP_PYTHON, the one in PATH, or the system's (a virtual environment hides Debian's python3-torch): the first
// that can import torch.distributed. Empty if there is none. Takes seconds, once.
inline const std::string& python_with_torch() {
  static const std::string found = [] {
    const char* const chosen = std::getenv("LOCKSTEP_PYTHON");
    for (const std::string python : {chosen != nullptr ? chosen : "python3", "/usr/bin/python3"}) {
      if (std::system((python + " -c 'import torch.distributed' >/dev/null 2>&1").c_str()) == 0) return python;
    }
    return std::string();
  }();
  return found;
}

inline constexpr const char* kNoPythonTorch =
    "no python3 can import torch.distributed (Debian: apt-get install python3-torch; LOCKSTEP_PYTHON names another)";

}  // namespace lockstep::testing
