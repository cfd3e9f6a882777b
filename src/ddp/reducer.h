// The reducer: autograd's gradients in, averaged gradients out. Only this file knows autograd's hooks.
//
// The life of a gradient: autograd accumulates it into .grad and calls on_gradient(); it goes into
// its bucket; when the bucket is complete, and all before it are on their way, its reduction is
// launched, while backward goes on; at the end of backward, finalize() waits for all buckets and
// .grad holds the averages.
//
// Nothing here assumes the CPU: a bucket is on its parameters' device, its reduction is queued there, and the wait at
// the end of backward makes the caller's stream wait (Work::wait). Only what ranks agree on (which parameters were
// used, the order of buckets) goes through CPU tensors.
//
// A pass is one synchronised backward. ReadyTracker knows its state; Bucket holds the memory; the plan
// says which gradient is where. Rebuilt once, after the first pass, in the order that was observed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ddp/bucket.h"
#include "ddp/bucket_plan.h"
#include "ddp/gradient_memory.h"
#include "ddp/pass_clock.h"
#include "ddp/ready_tracker.h"
#include "lockstep/ddp/gradient_synchronizer.h"
#include "lockstep/ddp/torch_compat.h"

namespace lockstep::detail {

// One thread calls everything but on_gradient(), which autograd's threads call.
class Reducer {
 public:
  // `parameters`: those that need gradients, each once; the group's check() has accepted them.
  Reducer(std::shared_ptr<TensorGroup> group, NamedTensors parameters, const DdpOptions& options);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // While off, gradients only accumulate.
  void set_synchronise(bool on);
  bool synchronise() const { return synchronise_; }

  // Throws if the last pass did not finish: naming the parameters that got no gradient. Ends the group,
  // so that the ranks that wait for this one hear why.
  void check_last_pass();
  // After a forward: what the loss may depend on.
  void expect_backward(const std::vector<at::Tensor>& outputs);
  // Asked at the first gradient of a pass: by how much this rank's gradients are multiplied before
  // they are averaged.
  void set_scale(std::function<double()> scale) { scale_of_pass_ = std::move(scale); }
  // The rank whose order of gradients counts when buckets are rebuilt.
  void set_authority(int rank) { authority_ = rank; }
  // Takes part in the other ranks' pass with gradients of zero; leaves .grad alone.
  void shadow_pass();

  void set_hook(std::shared_ptr<CommHook> hook);
  DdpLoggingData& logging_data() { return logging_; }

 private:
  struct Launch {
    HookFuture future;
    bool done = false;
  };

  void on_gradient(std::size_t index);
  void check_gradient(std::size_t index, const at::Tensor& gradient) const;
  void begin_pass();
  enum class Contribution { gradient, zero };
  void put(std::size_t index, Contribution contribution = Contribution::gradient);
  bool is_reduced_in_place(const at::Tensor& gradient) const;
  void launch_ready();
  void start(std::size_t bucket);
  void watch(const HookFuture& future);
  void finish_pass(bool keep_gradients);
  void finish_launches();
  void hand_out();
  void end_first_static_pass();
  void reduce_all_now(bool learn_used, Contribution contribution);
  void learn_used_parameters();
  void rebuild();
  void make_buckets(const std::vector<std::size_t>& order);
  std::string names(const std::vector<std::size_t>& indices) const;
  std::string unfinished_pass() const;
  void end_pass();

  // Constant after construction.
  const std::shared_ptr<TensorGroup> group_;
  const NamedTensors parameters_;
  const DdpOptions options_;
  const BucketLimits limits_;
  std::vector<compat::NodePointer> accumulators_;
  std::vector<std::uintptr_t> hooks_;

  std::mutex mutex_;
  // Everything below is guarded by mutex_ while a backward runs.
  bool synchronise_ = true;
  std::shared_ptr<CommHook> hook_;
  std::function<double()> scale_of_pass_;
  int authority_ = 0;

  BucketPlan plan_;
  std::vector<std::size_t> slot_of_;  // place in its bucket, per parameter
  std::vector<Bucket> buckets_;
  std::optional<ReadyTracker> tracker_;
  std::optional<GradientMemory> memory_;
  bool rebuilt_ = false;

  std::vector<std::size_t> unused_;  // found by the last forward's search
  std::vector<char> used_here_;      // since the last pass, per parameter
  std::vector<char> used_anywhere_;  // on some rank; all, unless searched for
  std::vector<int> static_counts_;   // static_graph: arrivals in the first pass
  bool static_known_ = false;        // static_graph: the first pass is over
  bool static_watch_ = false;        // static_graph: the end of the first pass will be seen
  std::vector<std::size_t> static_unused_;
  std::vector<std::size_t> first_order_;
  // Hooks on outputs, which a program may keep, look whether the reducer is still there.
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);

  double scale_ = 1;
  std::vector<Launch> launches_;
  at::Tensor used_map_;
  Work used_map_work_;
  std::int64_t in_place_bytes_ = 0;
  int passes_since_forward_ = 0;
  // Shared with operations that may end after the reducer, when a backward has failed.
  const std::shared_ptr<PassClock> clock_ = std::make_shared<PassClock>();
  DdpLoggingData logging_;
};

}  // namespace lockstep::detail
