// A port for the store that rank 0 serves itself (PyTorch's).
#pragma once

#include <cstdint>
#include <string>

#include "base/unique_fd.h"
#include "lockstep/base/status.h"

namespace lockstep::launch {

// Bound with SO_REUSEADDR, but not listening: no other program is given the port, and one that sets SO_REUSEADDR too,
// as PyTorch's store does, can still listen on it.
struct RankPort {
  UniqueFd fd;
  std::uint16_t port = 0;
};

// `port` 0: any. already_exists: in use. invalid_argument: not an address of this machine. May block in the resolver.
Result<RankPort> reserve_rank_port(const std::string& host, std::uint16_t port);

}  // namespace lockstep::launch
