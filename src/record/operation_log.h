// Records the collectives of one group, as this rank runs them.
//
// A record is written when the collective starts, so that a process that is killed in it leaves what it was doing, and
// completed when it ends. Arrivals of other ranks are not stored here: each rank records its own, and readers join the
// records of all ranks by group and sequence number.
//
// Reading the clock is most of the cost. In a series of small collectives that follow each other within microseconds,
// therefore, only every fourth stores when it started, and only one that waits long stores when it finished.
#pragma once

#include <cstdint>
#include <string_view>

#include "record/recorder.h"

namespace lockstep::record {

class OperationLog {
 public:
  // `group_id` is the same on all ranks of the group, and another for each generation. `size`: of the group.
  OperationLog(std::string_view name, std::string_view group_id, int rank, int size)
      : group_(Recorder::process().open_group(name, group_id, rank, size)) {}
  ~OperationLog() {
    if (group_ != nullptr) Recorder::close_group(group_);
  }
  OperationLog(const OperationLog&) = delete;
  OperationLog& operator=(const OperationLog&) = delete;

  // The thread that runs the group's collectives calls these two around each. `record`: all but started, finished and
  // outcome; issued 0: now.
  void begin(const OperationRecord& record) {
    if (group_ == nullptr || !operations_are_recorded.load(std::memory_order_relaxed)) return;  // read by this thread
    current_ = record;
    if (untimed_ == 0 || record.issued != 0) {
      start_timed();
    } else {
      --untimed_;
    }
    number_ = group_->operations.take_alone();
    group_->operations.write(number_, current_);
  }
  // `waited_long`: more than 50 us, perhaps.
  void end(bool ok, bool waited_long) {
    if (number_ == kNone) return;
    if (!in_series_ || waited_long || !ok) {
      current_.finished = now_ticks();
      if (current_.started != 0) thread_times().blocked += current_.finished - current_.started;
      untimed_ = 0;
    }
    current_.outcome = ok ? Outcome::done : Outcome::failed;
    auto& slot = group_->operations.slot(number_);
    if (current_.finished != 0) slot.set_word(OperationRecord::kFinishedWord, current_.finished);
    slot.set_word(OperationRecord::kOutcomeWord, current_.outcome_word());
    number_ = kNone;
  }

 private:
  void start_timed() {
    const std::uint64_t now = now_ticks();
    in_series_ = now - last_timed_ < kSeries;
    untimed_ = in_series_ ? kTimedEvery - 1 : 0;
    last_timed_ = now;
    current_.started = now;
    if (current_.issued == 0) current_.issued = now;
  }

  static constexpr std::uint32_t kTimedEvery = 4;
  // Since the last one that was timed: about 3 us.
  static constexpr std::uint64_t kSeries = 8000;
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  GroupRecord* const group_;
  // Owned by the thread that runs collectives.
  OperationRecord current_;
  std::uint64_t number_ = kNone;
  std::uint64_t last_timed_ = 0;
  bool in_series_ = false;
  std::uint32_t untimed_ = 0;  // how many are not timed before the next one that is
};

}  // namespace lockstep::record
