#include "base/net/refusal_log.h"

#include <fmt/format.h>

#include "base/log.h"
#include "base/printable.h"

namespace lockstep {

RefusalLog::~RefusalLog() { report(Clock::time_point::max()); }

void RefusalLog::refused(const std::string& peer, const Status& why, Clock::time_point now) {
  report(now);
  if (now >= interval_end_) {
    interval_end_ = now + kInterval;
    logged_ = 0;
  }
  const std::string text = printable(fmt::format("{}: {}", peer, why.message()));
  // A connection that is closed before it proves anything is a probe of the port, by a launcher or a load balancer, or
  // an attempt that the connector gave up.
  if (why.code() == StatusCode::peer_lost) return log_debug("refused a connection from {}", text);
  if (logged_ < kLinesPerInterval) {
    ++logged_;
    return log_warn("refused a connection from {}", text);
  }
  ++counted_;
  last_ = text;
}

std::optional<RefusalLog::Clock::time_point> RefusalLog::due() const {
  if (counted_ == 0) return std::nullopt;
  return interval_end_;
}

void RefusalLog::report(Clock::time_point now) {
  if (counted_ == 0 || now < interval_end_) return;
  log_warn("refused {} more {} within {} s; the last one from {}", counted_,
           counted_ == 1 ? "connection" : "connections", kInterval.count(), last_);
  counted_ = 0;
}

}  // namespace lockstep
