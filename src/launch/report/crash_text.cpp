#include "launch/report/crash_text.h"

#include <cxxabi.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace lockstep::launch {
namespace {

constexpr std::size_t kMaxFrames = 16;

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1));
}

std::string demangled(const std::string& name) {
  int status = 0;
  char* const readable = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string result = readable != nullptr ? readable : name;
  std::free(readable);
  return result;
}

// "./train(_ZN5Model7forwardEv+0x1c) [0x55...]" as "Model::forward()+0x1c in ./train", and without a name
// "./train+0x1234", which addr2line -e ./train understands.
std::string readable_frame(const std::string& frame) {
  const std::size_t open = frame.find('(');
  const std::size_t close = frame.find(')', open);
  if (open == std::string::npos || close == std::string::npos) return frame;
  const std::string file = frame.substr(0, open);
  const std::string place = frame.substr(open + 1, close - open - 1);
  const std::size_t plus = place.rfind('+');
  if (plus == std::string::npos) return frame;
  if (plus == 0) return file + place;
  return demangled(place.substr(0, plus)) + place.substr(plus) + " in " + file;
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// The frames of the reporter itself, and those that throw or deliver the signal, do not help to find the defect.
std::vector<std::string> interesting_frames(const std::vector<std::string>& frames) {
  auto first = frames.begin();
  const auto thrown =
      std::find_if(frames.begin(), frames.end(), [](const auto& f) { return contains(f, "__cxa_throw"); });
  const auto in_libc = [](const std::string& frame) { return contains(frame, "/libc.so"); };
  if (thrown != frames.end()) {
    first = thrown + 1;
  } else {
    first = std::find_if(frames.begin(), frames.end(), in_libc);
    while (first != frames.end() && in_libc(*first)) ++first;
    if (first == frames.end()) first = frames.begin();
  }
  std::vector<std::string> result;
  for (; first != frames.end() && result.size() < kMaxFrames; ++first) result.push_back(readable_frame(*first));
  return result;
}

}  // namespace

std::optional<CrashText> parse_crash_report(const std::string& text) {
  constexpr std::string_view kTime = "time_ns ";
  const auto lines = lines_of(text);
  if (lines.size() < 2 || !lines[0].starts_with(kTime)) return std::nullopt;
  CrashText crash;
  std::from_chars(lines[0].data() + kTime.size(), lines[0].data() + lines[0].size(), crash.time_ns);
  const auto backtrace = std::find(lines.begin(), lines.end(), "backtrace:");
  for (auto line = lines.begin() + 1; line != backtrace; ++line) crash.cause += *line + "\n";
  crash.cause = trimmed(crash.cause);
  if (crash.cause.empty()) return std::nullopt;
  if (backtrace != lines.end()) crash.frames = interesting_frames({backtrace + 1, lines.end()});
  return crash;
}

std::optional<CrashText> parse_torch_error(const std::string& json) {
  const auto document = nlohmann::json::parse(json, nullptr, false);
  if (!document.is_object() || !document.contains("message")) return std::nullopt;
  const auto& message = document["message"];
  CrashText crash;
  if (message.is_string()) {
    crash.cause = message.get<std::string>();
  } else if (message.is_object() && message.contains("message") && message["message"].is_string()) {
    crash.cause = message["message"].get<std::string>();
  }
  if (crash.cause.empty()) return std::nullopt;
  return crash;
}

std::string cause_from_stderr(std::string_view tail) {
  constexpr std::string_view kThrown = "terminate called after throwing an instance of '";
  const auto lines = lines_of(tail);
  std::string cause;
  bool in_traceback = false;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    if (line.starts_with(kThrown)) {
      cause = line.substr(kThrown.size(), line.rfind('\'') - kThrown.size());
    } else if (line.starts_with("  what():")) {
      cause += ": " + trimmed(line.substr(9));
    } else if (contains(line, "Assertion `") || contains(line, "ERROR: AddressSanitizer") ||
               contains(line, "WARNING: ThreadSanitizer") || line.starts_with("terminate called without")) {
      cause = trimmed(line);
    } else if (line.starts_with("Traceback (most recent call last)")) {
      in_traceback = true;
    } else if (in_traceback && !line.empty() && line[0] != ' ') {
      cause = line;  // "ValueError: ..."
      in_traceback = false;
    }
  }
  return cause;
}

bool reports_lost_peer(std::string_view text) {
  for (const std::string_view sign :
       {"peer_lost: ", "aborted: ", "Connection closed by peer", "Connection reset by peer", "Broken pipe"}) {
    if (contains(text, sign)) return true;
  }
  return false;
}

std::vector<std::string> last_lines(std::string_view text, std::size_t count) {
  auto lines = lines_of(text);
  if (lines.size() > count) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(count));
  return lines;
}

}  // namespace lockstep::launch
