// All buckets of a model: which gradient is in which one, and their reductions in flight.
//
// A pass: begin(), put() for every gradient, start() for every bucket in order, finish(), hand_out(), release(). Which
// gradients have arrived, and when a bucket may start, is up to the caller (ReadyTracker). Uses tensors, groups and
// hooks, not autograd. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ddp/sync/buckets/bucket.h"
#include "ddp/sync/buckets/bucket_plan.h"
#include "ddp/sync/buckets/gradient_memory.h"
#include "ddp/sync/pass_clock.h"
#include "ddp/sync/used_parameters.h"
#include "lockstep/ddp/ddp_options.h"

namespace lockstep::detail {

class BucketSet {
 public:
  // Throws Error if a size in the options is invalid. `clock` is shared with operations that may end later than this.
  BucketSet(std::shared_ptr<ProcessGroup> group, std::vector<at::Tensor> parameters, const DdpOptions& options,
            std::shared_ptr<PassClock> clock);

  // Assigns gradients to new buckets, taking them in this order. Between passes.
  void assign(const std::vector<std::size_t>& order);
  const BucketPlan& plan() const { return plan_; }
  std::vector<std::int64_t> bucket_bytes() const;
  // Replaces the all-reduce.
  void set_hook(std::shared_ptr<CommHook> hook) { hook_ = std::move(hook); }

  // Between these two, large gradients of the CPU are allocated in registered memory (gradient_memory.h).
  void open_memory();
  void close_memory();

  // Begins a pass, in which this rank's gradients are multiplied by `scale`.
  void begin(double scale);
  // False if gradients stay as they are: one rank, no hook.
  bool reduces() const { return group_->size() > 1 || hook_ || scale_ != 1; }
  // Adds a parameter's gradient to the pass; undefined: zero. `borrow`: a large one may be reduced in its own memory.
  // `keep`: its memory must stay as it is, so the parameter gets another gradient.
  struct Use {
    bool borrow = false;
    bool keep = false;
  };
  void put(std::size_t parameter, const at::Tensor& gradient, const Use& use);
  // Launches a bucket's reduction. All its gradients must have been put; in the same order on all ranks.
  void start(std::size_t bucket);
  // Waits for all buckets. Throws what an operation or the hook throws.
  void finish();
  // Gives every parameter its averaged gradient; one that no rank used keeps what it had.
  void hand_out(const UsedParameters& used);
  void release();

  // Of the last pass: bytes that were reduced without any copy, and of large gradients that had to be copied.
  std::int64_t in_place_bytes() const { return in_place_bytes_; }
  std::int64_t copied_bytes() const { return copied_bytes_; }

 private:
  struct Launch {
    HookFuture future;
    bool done = false;
  };
  struct Place {
    std::size_t bucket = 0;
    std::size_t slot = 0;
  };
  bool is_reduced_in_place(const at::Tensor& gradient) const;
  void watch(std::size_t bucket, const HookFuture& future);

  const std::shared_ptr<ProcessGroup> group_;
  const std::vector<at::Tensor> parameters_;
  // Of the gradients, as of construction, when all ranks were compared: a parameter's own may change on one rank.
  std::vector<Bucket::Strides> strides_;
  const BucketLimits limits_;
  const bool views_;
  const std::shared_ptr<PassClock> clock_;
  std::shared_ptr<CommHook> hook_;
  std::optional<GradientMemory> memory_;

  BucketPlan plan_;
  std::vector<Bucket> buckets_;
  std::vector<Place> places_;  // per parameter
  std::vector<char> keep_;     // per parameter, of the pass: Use::keep

  double scale_ = 1;
  std::vector<Launch> launches_;
  std::int64_t in_place_bytes_ = 0;
  std::int64_t copied_bytes_ = 0;
};

}  // namespace lockstep::detail
