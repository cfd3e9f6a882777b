// What people see: whole lines of the ranks with their numbers, and what the launcher has to say.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "launch/output/sink.h"
#include "rendezvous/environment.h"

namespace lockstep::launch {

enum class Stream : std::uint8_t { out = 0, err = 1 };

// Used by one thread.
class Console {
 public:
  // Colours only where a stream is a terminal, and NO_COLOR is not set.
  Console(int out_fd, int err_fd, bool prefix, const Environment& environment);

  // "[rank 3] text". `world_size` tells how wide the number is.
  void rank_line(Stream stream, int rank, int world_size, std::string_view text);
  // "lockstep run: text" on stderr, at once; for text of several lines only the first is prefixed.
  void say(std::string_view text);
  // The same for failures: the first line in bold red on a terminal.
  void alarm(std::string_view text);

  // Hands on what can be written without waiting.
  void flush();
  // Waits for slow readers until the deadline.
  void drain(Deadline deadline);
  // The sinks that wait for their reader; for poll(2).
  std::array<const Sink*, 2> sinks() const { return {sinks_[0].get(), sinks_[1].get()}; }
  // A reader is slow: ranks should not be read from.
  bool full() const { return sinks_[0]->full() || sinks_[1]->full(); }

 private:
  Sink& sink(Stream stream) { return *sinks_[static_cast<std::size_t>(stream)]; }
  bool coloured(Stream stream) { return colours_ && sink(stream).is_terminal(); }

  // One and the same where both lead to one file, so that a line cannot be cut by the other stream.
  std::array<std::shared_ptr<Sink>, 2> sinks_;
  bool prefix_;
  bool colours_;
};

}  // namespace lockstep::launch
