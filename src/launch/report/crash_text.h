// Why a rank failed, from what it wrote: Lockstep's crash report (base/crash_report.h), the error file of torch's
// @record, or its stderr. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

struct CrashText {
  std::int64_t time_ns = 0;         // when it happened; 0: not said
  std::string cause;                // "std::runtime_error: no such file"
  std::vector<std::string> frames;  // innermost first, for people
};

// nullopt where the text is none (a process that was killed while it wrote).
std::optional<CrashText> parse_crash_report(const std::string& text);
std::optional<CrashText> parse_torch_error(const std::string& json);

// "terminate called ..." with its what(), an assertion, a sanitizer's summary or Python's last line; empty if nothing
// like it is there.
std::string cause_from_stderr(std::string_view tail);

// True if these words say that the rank failed because another one had gone.
bool says_peer_is_gone(std::string_view words);

// The last `count` lines.
std::vector<std::string> last_lines(std::string_view text, std::size_t count);

}  // namespace lockstep::launch
