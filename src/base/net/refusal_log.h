// Log lines about connections that were refused. Strangers can cause any number of them, so their rate is limited: the
// first ones of an interval are logged, the others are counted. What strangers send reaches the log only as printable
// text.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "lockstep/base/status.h"

namespace lockstep {

// Used by one thread, which calls report() when it is due.
class RefusalLog {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kLinesPerInterval = 5;
  static constexpr std::chrono::seconds kInterval{10};

  RefusalLog() = default;
  // Reports the connections that were counted.
  ~RefusalLog();
  RefusalLog(const RefusalLog&) = delete;
  RefusalLog& operator=(const RefusalLog&) = delete;

  void refused(const std::string& peer, const Status& why, Clock::time_point now = Clock::now());
  // When report() has something to do; nothing if no connection was only counted.
  std::optional<Clock::time_point> due() const;
  void report(Clock::time_point now = Clock::now());

 private:
  Clock::time_point interval_end_ = Clock::time_point::min();
  std::size_t logged_ = 0;   // in this interval
  std::size_t counted_ = 0;  // and not logged
  std::string last_;
};

}  // namespace lockstep
