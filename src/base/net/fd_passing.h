// Bytes together with a file descriptor over a Unix socket.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/unique_fd.h"
#include "lockstep/base/status.h"

namespace lockstep {

// What one non-blocking call moved.
struct IoResult {
  std::size_t bytes = 0;
  bool would_block = false;  // nothing could be moved now
  bool short_of_memory =
      false;            // would_block, because the kernel lacks memory: poll(2) does not tell when to try again
  bool closed = false;  // the peer has ended the connection
  int error = 0;        // errno of any other failure; EMFILE: attached descriptors were lost
};

// Sends what fits now. `passed_fd` (or -1) is sent with the first byte: if bytes > 0 it was sent.
IoResult send_some(int socket, std::span<const std::byte> bytes, int passed_fd = -1);

// Receives what is available; attached descriptors are appended to `fds`, close-on-exec.
IoResult receive_some(int socket, std::span<std::byte> bytes, std::vector<UniqueFd>& fds);

}  // namespace lockstep
