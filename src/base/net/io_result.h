// What one non-blocking call on a socket did.
#pragma once

#include <cerrno>
#include <cstddef>

namespace lockstep {

struct IoResult {
  std::size_t bytes = 0;
  bool would_block = false;  // nothing could be moved now
  bool short_of_memory =
      false;            // would_block, because the kernel lacks memory: poll(2) does not tell when to try again
  bool closed = false;  // the peer has ended the connection
  int error = 0;        // errno of any other failure; EMFILE: attached descriptors were lost; EBADMSG: see Channel
};

// After a call that failed.
inline IoResult io_result_of_errno(int error) {
  IoResult result;
  if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR) {
    result.would_block = true;
  } else if (error == ENOBUFS || error == ENOMEM || error == ETOOMANYREFS) {
    // The kernel is short of memory, or too many descriptors are in flight. Polling would not wait for it to pass.
    result.would_block = true;
    result.short_of_memory = true;
  } else {
    result.closed = error == EPIPE || error == ECONNRESET;
    result.error = error;
  }
  return result;
}

}  // namespace lockstep
