// The reducer: autograd's gradients in, averaged gradients out.
//
// The life of a gradient: a forward's outputs carry a hook, which announces the backward; autograd accumulates a
// gradient into .grad and calls on_gradient(); the gradient goes into its bucket; when the bucket is complete, and all
// before it are in flight, its reduction is launched, while backward continues; at the end of backward, the reducer
// waits for all buckets, and .grad holds the averages.
//
// Nothing here assumes the CPU: a bucket is on its parameters' device, its reduction is queued there, and the wait at
// the end of backward makes the caller's stream wait (Work::wait). Only what ranks agree on (which parameters were
// used, the order of buckets) goes through CPU tensors.
//
// A pass is one synchronised backward. Each part of its state has a class of its own: AccumulatorHooks, ReadyTracker
// (which gradients are there), BucketSet (their memory, and what is in flight), PendingForwards (what the backward is
// for), UsedParameters, StaticGraph, WeightedGradients, PassClock. Buckets are rebuilt once, after the first pass, in
// the order that was observed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ddp/sync/accumulator_hooks.h"
#include "ddp/sync/buckets/bucket_set.h"
#include "ddp/sync/buckets/ready_tracker.h"
#include "ddp/sync/pass_clock.h"
#include "ddp/sync/pending_forwards.h"
#include "ddp/sync/static_graph.h"
#include "ddp/sync/straggler_watch.h"
#include "ddp/sync/used_parameters.h"
#include "ddp/sync/weighted_gradients.h"
#include "ddp/torch_compat.h"
#include "lockstep/ddp/gradient_synchronizer.h"

namespace lockstep::detail {

// One thread calls everything but the hooks (on_output, on_gradient, end_of_backward), which autograd's threads call.
class Reducer {
 public:
  // `parameters`: those that need gradients, each once; the group's check() has accepted them.
  // `label` (operation_label.h): the model's number, the same on all ranks; 0: none.
  Reducer(std::shared_ptr<ProcessGroup> group, NamedTensors parameters, const DdpOptions& options, int label = 0);
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Between these two, which may be nested and overlap, forwards are recorded as ones whose gradients only accumulate.
  void begin_no_sync();
  void end_no_sync();
  bool synchronise() const { return no_sync_guards_ == 0; }

  // Throws if the last pass did not finish, naming the parameters that got no gradient, or if the last backward threw.
  // Ends the group, so that the ranks that wait for this one get the reason.
  void check_last_pass();
  // Before a forward: see AccumulatorHooks::follow().
  void follow_accumulators();
  // After a forward: what the loss may depend on. Throws if nothing there needs a gradient.
  void expect_backward(const std::vector<at::Tensor>& outputs, ForwardRecord record);
  // True while a forward waits for its backward; and one whose gradients are to be averaged.
  bool awaits_backward();
  bool awaits_synchronisation();
  // How many passes this rank has finished.
  std::int64_t passes() const { return logging_.steps; }
  // What check_last_pass() would report; empty if nothing.
  std::string unfinished_pass();
  // Called at the first gradient of a pass: the factor for this rank's gradients before they are averaged.
  void set_scale(std::function<double()> scale) { scale_of_pass_ = std::move(scale); }
  // The rank whose order of gradients counts when buckets are rebuilt.
  void set_authority(int rank) { authority_ = rank; }
  // Takes part in the other ranks' pass with gradients of zero; does not change .grad.
  void shadow_pass();

  void set_hook(std::shared_ptr<CommHook> hook);
  void forward_began() { clock_->forward_began(); }
  // Which rank the others wait for. Collective.
  StragglerReport stragglers();
  DdpLoggingData& logging_data() { return logging_; }

 private:
  // Hooks of autograd.
  void on_output(const PendingForwards::Record& record);
  void on_gradient(std::size_t index, const at::Tensor& incoming);
  void end_of_backward();

  static std::atomic<std::uint64_t> made;
  // One backward.
  void look_at_output(const PendingForwards::Record& record);
  void begin_backward();
  void leave_backward();
  void abandon_backward() noexcept;
  void check_backwards();
  bool is_to_be_averaged(std::size_t index) const;
  void check_gradient(std::size_t index, const at::Tensor& incoming) const;
  void keep_apart(std::size_t index, const at::Tensor& incoming);
  void finish_backward();
  void rethrow_mismatch(const std::exception& error) const;

  // One pass.
  enum class Contribution { gradient, zero };
  // `unused`: what parameters without a gradient in this backward contribute.
  void begin_pass(Contribution unused = Contribution::gradient);
  void put(std::size_t index, Contribution contribution, const at::Tensor& incoming = {});
  void launch_ready();
  void reduce_all_now(bool exchange_used, Contribution contribution);
  void finish_pass(bool keep_gradients);
  void end_pass();

  void assign_buckets(const std::vector<std::size_t>& order);
  void rebuild();
  void log_pass();
  int pass_label() const;
  std::string describe_bucket(std::size_t bucket) const;
  [[noreturn]] void fail(const std::string& message);

  // Constant after construction.
  const std::shared_ptr<ProcessGroup> group_;
  const NamedTensors parameters_;
  const DdpOptions options_;
  const int label_;
  const std::uint64_t number_;  // by which the models of one loss are finished in the same order on all ranks

  std::mutex mutex_;
  // Everything below is guarded by mutex_ while a backward runs.
  int no_sync_guards_ = 0;
  std::function<double()> scale_of_pass_;
  int authority_ = 0;

  // Of the model.
  // Shared with operations that may end after the reducer, when a backward has failed.
  const std::shared_ptr<PassClock> clock_ = std::make_shared<PassClock>();
  BucketSet buckets_;
  StragglerWatch stragglers_;
  std::optional<ReadyTracker> tracker_;
  std::vector<std::size_t> first_order_;  // in which gradients arrived in the first pass
  bool rebuilt_ = false;
  StaticGraph static_;

  // Of forwards and the backward that runs.
  PendingForwards pending_;
  WeightedGradients weights_;
  bool in_backward_ = false;
  bool fills_all_ = false;        // this backward computes all gradients, not only chosen ones
  bool reached_outputs_ = false;  // by this backward
  bool arrived_ = false;          // a gradient, in this backward
  bool weighted_ = false;         // weights_ has begun, in this backward
  bool half_done_ = false;        // a backward threw after gradients had arrived
  std::int64_t failed_ = 0;       // backwards that threw before, and that other ranks may have finished
  bool averaged_ = true;          // nothing was accumulated since the last pass

  // Of the pass.
  UsedParameters used_;
  std::vector<std::size_t> skipped_;  // taken for unused at the beginning of the pass
  int passes_since_forward_ = 0;

  AccumulatorHooks hooks_;
  // Hooks on outputs, which a program may keep, check whether the reducer still exists.
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  DdpLoggingData logging_;
};

}  // namespace lockstep::detail
