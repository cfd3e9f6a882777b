#include "ddp/sync/buckets/ready_tracker.h"

namespace lockstep::detail {

ReadyTracker::ReadyTracker(std::size_t parameter_count, const BucketPlan& plan)
    : bucket_of_(parameter_count, kNone), expected_(parameter_count, 1), bucket_waiting_(plan.size()) {
  for (std::size_t bucket = 0; bucket < plan.size(); ++bucket) {
    for (std::size_t parameter : plan[bucket]) bucket_of_[parameter] = bucket;
  }
  reset();
}

void ReadyTracker::expect(std::size_t parameter, int times) {
  expected_[parameter] = times;
  reset();
}

ReadyTracker::Arrival ReadyTracker::arrived(std::size_t parameter) {
  if (state_ == State::idle) state_ = State::collecting;
  if (remaining_[parameter] == 0) return Arrival::surplus;
  if (--remaining_[parameter] > 0) return Arrival::counted;
  make_ready(parameter);
  return Arrival::ready;
}

void ReadyTracker::skip(std::size_t parameter) {
  if (state_ == State::idle) state_ = State::collecting;
  if (remaining_[parameter] == 0) return;
  remaining_[parameter] = 0;
  make_ready(parameter);
}

void ReadyTracker::make_ready(std::size_t parameter) {
  ready_order_.push_back(parameter);
  --bucket_waiting_[bucket_of_[parameter]];
}

std::size_t ReadyTracker::next_launch() {
  if (state_ != State::collecting || launched_ == bucket_waiting_.size() || bucket_waiting_[launched_] > 0) {
    return kNone;
  }
  const std::size_t bucket = launched_++;
  if (launched_ == bucket_waiting_.size()) state_ = State::complete;
  return bucket;
}

std::vector<std::size_t> ReadyTracker::missing() const {
  std::vector<std::size_t> result;
  for (std::size_t parameter = 0; parameter < remaining_.size(); ++parameter) {
    if (remaining_[parameter] > 0) result.push_back(parameter);
  }
  return result;
}

void ReadyTracker::reset() {
  state_ = State::idle;
  remaining_ = expected_;
  bucket_waiting_.assign(bucket_waiting_.size(), 0);
  for (std::size_t parameter = 0; parameter < expected_.size(); ++parameter) {
    if (expected_[parameter] > 0) ++bucket_waiting_[bucket_of_[parameter]];
  }
  launched_ = 0;
  ready_order_.clear();
}

}  // namespace lockstep::detail
