#include "dashboard/process_usage.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>

#include "base/small_file.h"

namespace lockstep::dashboard {

std::optional<ProcessUsage> parse_stat(std::string_view stat, long ticks_per_second, long page_bytes) {
  // The second field is the program's name in parentheses, and may contain anything.
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string_view::npos) return std::nullopt;
  stat.remove_prefix(name_end + 1);
  // From the third field on, as proc(5) counts them.
  std::array<long long, 25> fields{};
  for (std::size_t field = 3; field < fields.size(); ++field) {
    const std::size_t begin = stat.find_first_not_of(" \n");
    if (begin == std::string_view::npos) return std::nullopt;
    stat.remove_prefix(begin);
    const std::size_t length = std::min(stat.find_first_of(" \n"), stat.size());
    const auto parsed = std::from_chars(stat.data(), stat.data() + length, fields[field]);
    if (field > 3 && parsed.ec != std::errc()) return std::nullopt;  // the third is a letter
    stat.remove_prefix(length);
  }
  return ProcessUsage{.cpu_seconds = double(fields[14] + fields[15]) / double(ticks_per_second),
                      .resident_bytes = static_cast<std::uint64_t>(fields[24]) * static_cast<std::uint64_t>(page_bytes),
                      .threads = static_cast<int>(fields[20])};
}

std::optional<ProcessUsage> read_usage(std::int64_t pid) {
  const auto content = read_small_file(fmt::format("/proc/{}/stat", pid));
  if (!content.ok() || !*content) return std::nullopt;
  return parse_stat(**content, ::sysconf(_SC_CLK_TCK), ::sysconf(_SC_PAGESIZE));
}

}  // namespace lockstep::dashboard
