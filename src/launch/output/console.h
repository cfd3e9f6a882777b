// The launcher's console output: whole lines of the ranks with their names, and the launcher's own messages.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "launch/output/sink.h"
#include "rendezvous/environment.h"

namespace lockstep::launch {

enum class Stream : std::uint8_t { out = 0, err = 1 };
// What a message of the launcher is about.
enum class MessageKind : std::uint8_t { general, failure, generation };
using MessageListener = std::function<void(MessageKind kind, std::string_view text)>;

// Used by one thread.
class Console {
 public:
  // Colours only if a stream is a terminal and NO_COLOR is not set.
  Console(int out_fd, int err_fd, bool prefix, const Environment& environment);

  // With LOCKSTEP_LOG_FORMAT=json, a line that is a JSON object has no prefix, and those of say() and alarm() are JSON.

  // "[rank 3] text", or "[worker 1] text" in an elastic job. `count` determines the width of the number.
  void rank_line(Stream stream, bool elastic, int number, int count, std::string_view text);
  // "lockstep run: text" on stderr, at once; for text of several lines only the first is prefixed.
  void say(std::string_view text, MessageKind kind = MessageKind::general);
  // The same for failures: the first line in bold red on a terminal.
  void alarm(std::string_view text);

  // Is called with each of the launcher's messages from now on.
  void listen(MessageListener listener) { listener_ = std::move(listener); }

  // Writes what can be written without blocking.
  void flush();
  // Waits for slow readers until the deadline.
  void drain(Deadline deadline);
  // The sinks that wait for their reader; for poll(2).
  std::array<const Sink*, 2> sinks() const { return {sinks_[0].get(), sinks_[1].get()}; }
  // A reader is slow: ranks should not be read from.
  bool full() const { return sinks_[0]->full() || sinks_[1]->full(); }

 private:
  Sink& sink(Stream stream) { return *sinks_[static_cast<std::size_t>(stream)]; }
  void write_json(std::string_view level, std::string_view text);
  bool coloured(Stream stream) { return colours_ && sink(stream).is_terminal(); }

  // The same object if both lead to one file, so that a line cannot be split by the other stream.
  std::array<std::shared_ptr<Sink>, 2> sinks_;
  MessageListener listener_;  // may be empty
  bool prefix_;
  bool colours_;
};

}  // namespace lockstep::launch
