#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/json_log.h"

namespace lockstep {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::trace: return spdlog::level::trace;
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warn: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
  }
  return spdlog::level::info;
}

std::atomic<int> log_rank{-1};
std::atomic<std::int64_t> log_generation{0};

// Leaked on purpose: threads may log while static objects are being destroyed.
spdlog::logger& logger() {
  static auto* instance = [] {
    auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
    auto* created = new spdlog::logger("lockstep", sink);
    created->set_pattern(logs_as_json() ? "%v" : "%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
    const char* wanted = std::getenv("LOCKSTEP_LOG");
    created->set_level(wanted != nullptr ? spdlog::level::from_str(wanted) : spdlog::level::warn);
    return created;
  }();
  return *instance;
}

}  // namespace

bool log_enabled(LogLevel level) { return logger().should_log(to_spdlog(level)); }

void log_line(LogLevel level, std::string_view line) {
  const int rank = log_rank.load(std::memory_order_relaxed);  // a label, orders nothing
  const std::int64_t generation = log_generation.load(std::memory_order_relaxed);
  if (logs_as_json()) {
    const auto name = spdlog::level::to_string_view(to_spdlog(level));
    const std::string json = json_log_line("lockstep", {name.data(), name.size()}, rank, generation, line);
    logger().log(to_spdlog(level), std::string_view(json));
  } else if (rank >= 0 && generation > 0) {
    logger().log(to_spdlog(level), "[lockstep rank {}, generation {}] {}", rank, generation, line);
  } else if (rank >= 0) {
    logger().log(to_spdlog(level), "[lockstep rank {}] {}", rank, line);
  } else {
    logger().log(to_spdlog(level), "[lockstep] {}", line);
  }
}

void set_log_rank(int rank, std::int64_t generation) {
  log_rank.store(rank, std::memory_order_relaxed);
  log_generation.store(generation, std::memory_order_relaxed);
}

}  // namespace lockstep
