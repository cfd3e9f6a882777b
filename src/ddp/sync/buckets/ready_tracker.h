// Which gradients of a backward pass have arrived, and which buckets may be launched.
//
// Pure bookkeeping, with explicit states: idle -> collecting (first gradient) -> complete (every
// bucket launched) -> idle (reset). Buckets are launched in their own order, whatever the order in
// which they become complete, because ranks must agree on it. Not thread-safe.
#pragma once

#include <cstddef>
#include <vector>

#include "ddp/sync/buckets/bucket_plan.h"

namespace lockstep::detail {

class ReadyTracker {
 public:
  enum class State { idle, collecting, complete };

  // Parameters are 0 .. parameter_count-1, each in exactly one bucket of the plan.
  ReadyTracker(std::size_t parameter_count, const BucketPlan& plan);

  State state() const { return state_; }
  // How often a parameter's gradient arrives in a pass before it is ready: 1 at first; 0: it never
  // arrives and is not waited for. Ends the pass, if there is one.
  void expect(std::size_t parameter, int times);

  enum class Arrival {
    counted,  // will arrive again in this pass
    ready,    // that was all
    surplus,  // it had been ready already
  };
  // A gradient arrived. If idle, this begins a pass.
  Arrival arrived(std::size_t parameter);
  // The parameter gets no gradient in this pass (or no more). Nothing if it is ready already.
  void skip(std::size_t parameter);

  // The next bucket that has become launchable, each once: kNone if there is none now.
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t next_launch();

  // Parameters that the pass still waits for, ascending.
  std::vector<std::size_t> missing() const;
  bool is_ready(std::size_t parameter) const { return remaining_[parameter] == 0; }
  // Parameters in the order in which they became ready in this pass.
  const std::vector<std::size_t>& ready_order() const { return ready_order_; }

  // Ends the pass, complete or not.
  void reset();

 private:
  void make_ready(std::size_t parameter);

  std::vector<std::size_t> bucket_of_;
  std::vector<int> expected_;

  State state_ = State::idle;
  std::vector<int> remaining_;               // arrivals still to come, per parameter
  std::vector<std::size_t> bucket_waiting_;  // parameters not ready, per bucket
  std::size_t launched_ = 0;
  std::vector<std::size_t> ready_order_;
};

}  // namespace lockstep::detail
