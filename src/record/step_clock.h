// Where the time of a training step goes on this rank: own time by phase and bucket, and the exposed wait.
//
// A step ends with the averaged gradients. It begins at the end of the step before, so that what lies between a
// backward and the next forward (data, optimizer) belongs to it. Time that the training thread waited for other ranks
// is not own time: the ranks' own times can be compared without comparing their clocks.
//
// Writes a StepRecord for each step, and spans for forward, backward, the exposed wait and each bucket.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "record/recorder.h"

namespace lockstep::record {

// Called by the thread that trains, or by one thread at a time; bucket_reduced() by any.
class StepClock {
 public:
  StepClock() : model_(Recorder::process().next_model()), first_step_(Recorder::process().area().step.load()) {}

  void forward_began();
  void forward_ended();
  // In the order of the buckets.
  void bucket_launched(std::size_t bucket, std::uint64_t bytes);
  // The last call for a bucket counts.
  void bucket_reduced(std::size_t bucket);
  void gradients_complete();
  void wait_ended();
  void step_ended();

  std::uint32_t model() const { return model_; }
  std::uint64_t steps() const { return steps_; }

 private:
  static constexpr std::size_t kTrackedBuckets = 256;  // further ones have no spans

  // Adds the time since the last call to the part that the step is in, and begins the next one.
  std::uint64_t enter(PhaseKind next);
  void add_own(float ticks);
  void add_span(PhaseKind kind, std::uint64_t begin, std::uint64_t end, std::uint32_t index, std::uint64_t bytes) const;
  void reset(std::uint64_t now);

  const std::uint32_t model_;
  const std::int64_t first_step_;  // of the training, when this model began
  std::uint64_t steps_ = 0;
  std::uint64_t step_began_ = 0;  // 0: unknown, before the first step

  PhaseKind part_ = PhaseKind::other;
  std::uint64_t mark_ = now_ticks();  // when this part began
  const ThreadTimes* thread_ = nullptr;
  ThreadTimes at_mark_;  // of that thread

  StepRecord step_;
  std::size_t next_bucket_ = 0;
  std::uint64_t forward_began_ = 0, backward_began_ = 0, wait_began_ = 0;

  struct Bucket {
    std::uint64_t launched = 0;
    std::uint64_t bytes = 0;
    std::atomic<std::uint64_t> reduced{0};
  };
  std::array<Bucket, kTrackedBuckets> buckets_;
};

}  // namespace lockstep::record
