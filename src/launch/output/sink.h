// The destination of output: the launcher's stdout or stderr. Never blocks the launcher, even if no process reads it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/base/deadline.h"

namespace lockstep::launch {

// Buffers what the reader has not read yet. After the reader has closed its end (EPIPE), discards everything. Does not
// own the descriptor, and does not make it non-blocking: that would affect all processes that share the terminal.
// Used by one thread; SIGPIPE must be ignored.
class Sink {
 public:
  explicit Sink(int fd);

  void write(std::string_view text) { pending_.append(text); }
  // Writes what can be written without blocking.
  void flush();
  // The same, and waits for the reader until the deadline.
  void drain(Deadline deadline);

  bool has_pending() const { return sent_ < pending_.size(); }
  // The reader is slow: producers should wait.
  bool full() const { return pending_.size() - sent_ > kFull; }
  int fd() const { return fd_; }
  bool is_terminal() const { return terminal_; }

 private:
  static constexpr std::size_t kFull = std::size_t{1024} * 1024;
  bool writable(int timeout_ms) const;

  int fd_;
  bool terminal_;
  bool regular_;
  bool broken_ = false;
  std::string pending_;
  std::size_t sent_ = 0;  // of pending_
};

// True if both descriptors lead to the same file, pipe or terminal.
bool same_file(int a, int b);

}  // namespace lockstep::launch
