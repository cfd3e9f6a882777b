// Bytes together with a file descriptor over a Unix socket.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/net/io_result.h"
#include "base/unique_fd.h"
#include "lockstep/base/status.h"

namespace lockstep {

// Sends what fits now. `passed_fd` (or -1) is sent with the first byte: if bytes > 0 it was sent.
IoResult send_some(int socket, std::span<const std::byte> bytes, int passed_fd = -1);

// Receives what is available; attached descriptors are appended to `fds`, close-on-exec.
IoResult receive_some(int socket, std::span<std::byte> bytes, std::vector<UniqueFd>& fds);

}  // namespace lockstep
