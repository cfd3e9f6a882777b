// Log lines to stderr, through spdlog. LOCKSTEP_LOG sets the level (trace, debug, info, warn,
// error, off); warn by default. LOCKSTEP_LOG_FORMAT=json writes each as a JSON object (json_log.h). Thread-safe. Lines
// are prefixed "[lockstep rank 2]" once set_log_rank was called, and "[lockstep rank 2, generation 5]" in an elastic
// job.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <utility>

namespace lockstep {

enum class LogLevel { trace, debug, info, warn, error };

bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view line);
// The rank of this process in its world, and the generation of that world (0: it has none), for the prefix of every
// later line.
void set_log_rank(int rank, std::int64_t generation = 0);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::debug, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::info, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::warn, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::error, format, std::forward<Args>(args)...);
}

}  // namespace lockstep
