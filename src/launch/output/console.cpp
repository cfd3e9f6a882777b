#include "launch/output/console.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_log.h"

namespace lockstep::launch {
namespace {

// Cyan, green, yellow, magenta, blue; red is for failures.
constexpr std::array<int, 5> kRankColours = {36, 32, 33, 35, 34};

bool is_json_object(std::string_view line) { return line.starts_with('{') && line.ends_with('}'); }

}  // namespace

Console::Console(int out_fd, int err_fd, bool prefix, const Environment& environment)
    : prefix_(prefix), colours_(environment("NO_COLOR").value_or("").empty() && environment("TERM") != "dumb") {
  sinks_[0] = std::make_shared<Sink>(out_fd);
  sinks_[1] = same_file(out_fd, err_fd) ? sinks_[0] : std::make_shared<Sink>(err_fd);
}

void Console::rank_line(Stream stream, bool elastic, int number, int count, std::string_view text) {
  Sink& target = sink(stream);
  if (prefix_ && !(logs_as_json() && is_json_object(text))) {
    const std::size_t width = std::to_string(count - 1).size();
    const std::string label = fmt::format("[{} {:>{}}] ", elastic ? "worker" : "rank", number, width);
    const int colour = kRankColours[static_cast<std::size_t>(number) % kRankColours.size()];
    target.write(coloured(stream) ? fmt::format("\033[{}m{}\033[0m", colour, label) : label);
  }
  target.write(text);
  target.write("\n");
}

void Console::say(std::string_view text, MessageKind kind) {
  if (listener_) listener_(kind, text);
  if (logs_as_json()) return write_json("info", text);
  sink(Stream::err).write(fmt::format("lockstep run: {}\n", text));
  flush();
}

void Console::alarm(std::string_view text) {
  if (listener_) listener_(MessageKind::failure, text);
  if (logs_as_json()) return write_json("error", text);
  const std::size_t first = std::min(text.find('\n'), text.size());
  const bool colour = coloured(Stream::err);
  sink(Stream::err)
      .write(fmt::format("{}lockstep run: {}{}{}\n", colour ? "\033[1;31m" : "", text.substr(0, first),
                         colour ? "\033[0m" : "", text.substr(first)));
  flush();
}

void Console::write_json(std::string_view level, std::string_view text) {
  sink(Stream::err).write(json_log_line("lockstep run", level, -1, 0, text) + "\n");
  flush();
}

void Console::flush() {
  for (const auto& one : sinks_) one->flush();
}

void Console::drain(Deadline deadline) {
  for (const auto& one : sinks_) one->drain(deadline);
}

}  // namespace lockstep::launch
