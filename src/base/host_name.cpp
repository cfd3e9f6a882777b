#include "base/host_name.h"

#include <unistd.h>

#include <array>

namespace lockstep {

std::string host_name() {
  std::array<char, 256> name{};  // longer than HOST_NAME_MAX, and so terminated
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

}  // namespace lockstep
