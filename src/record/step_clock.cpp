#include "record/step_clock.h"

#include <algorithm>

namespace lockstep::record {

std::uint64_t StepClock::enter(PhaseKind next) {
  const std::uint64_t now = now_ticks();
  const ThreadTimes& times = thread_times();
  std::uint64_t elapsed = now - mark_;
  if (part_ == PhaseKind::exposed_wait) {
    step_.exposed += static_cast<float>(elapsed);
  } else {
    // Autograd may have continued on another thread, whose times began elsewhere.
    if (thread_ == &times) {
      std::uint64_t elsewhere = times.blocked - at_mark_.blocked;
      for (std::size_t kind = 0; kind < kPhaseKinds; ++kind) {
        const std::uint64_t marked = times.marked[kind] - at_mark_.marked[kind];
        step_.own[kind] += static_cast<float>(marked);
        elsewhere += marked;
      }
      elapsed -= std::min(elapsed, elsewhere);
    }
    add_own(static_cast<float>(elapsed));
  }
  part_ = next;
  mark_ = now;
  thread_ = &times;
  at_mark_ = times;
  auto& area = Recorder::process().area();
  // Relaxed: for a human who looks at it.
  area.current_phase.store(static_cast<std::uint32_t>(next) + 1, std::memory_order_relaxed);
  area.current_since.store(now, std::memory_order_relaxed);
  return now;
}

void StepClock::add_own(float ticks) {
  step_.own[static_cast<std::size_t>(part_)] += ticks;
  if (part_ == PhaseKind::backward) step_.bucket[std::min(next_bucket_, kBucketSegments - 1)] += ticks;
}

void StepClock::add_span(PhaseKind kind, std::uint64_t begin, std::uint64_t end, std::uint32_t index,
                         std::uint64_t bytes) const {
  Recorder::process().add(SpanRecord{.begin = begin,
                                     .end = end,
                                     .blocked = 0,
                                     .kind = kind,
                                     .index = index,
                                     .bytes = bytes,
                                     .model = model_,
                                     .thread = thread_number()});
}

void StepClock::forward_began() { forward_began_ = enter(PhaseKind::forward); }

void StepClock::forward_ended() {
  backward_began_ = enter(PhaseKind::backward);
  add_span(PhaseKind::forward, forward_began_, backward_began_, static_cast<std::uint32_t>(steps_ + 1), 0);
}

void StepClock::bucket_launched(std::size_t bucket, std::uint64_t bytes) {
  const std::uint64_t now = enter(PhaseKind::backward);
  next_bucket_ = bucket + 1;
  step_.buckets = static_cast<std::uint32_t>(next_bucket_);
  if (bucket >= kTrackedBuckets) return;
  buckets_[bucket].launched = now;
  buckets_[bucket].bytes = bytes;
}

void StepClock::bucket_reduced(std::size_t bucket) {
  // Relaxed: read after the operations that stored it were waited for.
  if (bucket < kTrackedBuckets) buckets_[bucket].reduced.store(now_ticks(), std::memory_order_relaxed);
}

void StepClock::gradients_complete() {
  wait_began_ = enter(PhaseKind::exposed_wait);
  if (backward_began_ != 0) {
    add_span(PhaseKind::backward, backward_began_, wait_began_, static_cast<std::uint32_t>(steps_ + 1), 0);
  }
}

void StepClock::wait_ended() {
  const std::uint64_t now = enter(PhaseKind::backward);
  add_span(PhaseKind::exposed_wait, wait_began_, now, static_cast<std::uint32_t>(steps_ + 1), 0);
}

void StepClock::step_ended() {
  const std::uint64_t now = enter(PhaseKind::other);
  ++steps_;
  Recorder::process().advance_step(first_step_ + static_cast<std::int64_t>(steps_));
  const std::size_t buckets = std::min<std::size_t>(step_.buckets, kTrackedBuckets);
  for (std::size_t i = 0; i < buckets; ++i) {
    // Relaxed: see bucket_reduced().
    const std::uint64_t reduced = buckets_[i].reduced.load(std::memory_order_relaxed);
    if (reduced >= buckets_[i].launched) {
      add_span(PhaseKind::bucket, buckets_[i].launched, reduced, static_cast<std::uint32_t>(i), buckets_[i].bytes);
    }
  }
  if (step_began_ != 0) {
    step_.number = steps_;
    step_.end = now;
    step_.model = model_;
    step_.total = static_cast<float>(now - step_began_);
    Recorder::process().add(step_);
  }
  reset(now);
}

void StepClock::reset(std::uint64_t now) {
  step_ = {};
  next_bucket_ = 0;
  backward_began_ = 0;
  part_ = PhaseKind::other;
  mark_ = now;
  step_began_ = now;
  thread_ = &thread_times();
  at_mark_ = *thread_;
}

}  // namespace lockstep::record
