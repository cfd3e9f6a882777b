// Why a rank failed, from its output: Lockstep's crash report (base/crash_report.h), the error file of torch's
// @record, or its stderr. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

struct CrashText {
  std::int64_t time_ns = 0;         // when it happened; 0: unknown
  std::string cause;                // "std::runtime_error: no such file"
  std::vector<std::string> frames;  // innermost first, human-readable
};

// nullopt if the text is not a complete report (a process that was killed while writing it).
std::optional<CrashText> parse_crash_report(const std::string& text);
std::optional<CrashText> parse_torch_error(const std::string& json);

// "terminate called ..." with its what(), an assertion, a sanitizer's summary or Python's last line; empty if there is
// nothing like that.
std::string cause_from_stderr(std::string_view tail);

// True if this text reports that the rank failed because another one was lost.
bool reports_lost_peer(std::string_view text);

// The last `count` lines.
std::vector<std::string> last_lines(std::string_view text, std::size_t count);

}  // namespace lockstep::launch
