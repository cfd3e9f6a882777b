#include "base/json_log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>

#include "base/host_name.h"
#include "base/json_text.h"

namespace lockstep {
namespace {

std::string utc_time() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  std::tm utc{};
  ::gmtime_r(&now.tv_sec, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                     utc.tm_hour, utc.tm_min, utc.tm_sec, now.tv_nsec / 1'000'000);
}

}  // namespace

bool logs_as_json() {
  static const bool json = [] {
    const char* const format = std::getenv("LOCKSTEP_LOG_FORMAT");
    return format != nullptr && std::string_view(format) == "json";
  }();
  return json;
}

std::string json_log_line(std::string_view program, std::string_view level, int rank, std::int64_t generation,
                          std::string_view message) {
  std::string line = fmt::format(R"({{"time":"{}","level":{},"program":{},"host":{},"pid":{})", utc_time(),
                                 json_string(level), json_string(program), json_string(host_name()), ::getpid());
  if (rank >= 0) line += fmt::format(R"(,"rank":{})", rank);
  if (generation > 0) line += fmt::format(R"(,"generation":{})", generation);
  return line + fmt::format(R"(,"message":{}}})", json_string(message));
}

}  // namespace lockstep
