// The handle of an operation that PyTorch gets: c10d's Work over the engine's.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/status.h"
#include "python/completion_queue.h"

namespace lockstep::python {

// The error as PyTorch reports it: DistBackendError (a RuntimeError) on 2.x, RuntimeError on 1.13, with the message of
// `status`; ValueError if an argument was wrong.
std::exception_ptr exception_of(const Status& status);
[[noreturn]] void throw_status(const Status& status);

// Keeps the operation's tensors until it is complete. Thread-safe.
class TorchWork final : public ::c10d::Work {
 public:
  using Outputs = std::vector<std::vector<at::Tensor>>;

  // `name` is the operation's, for messages and, as "lockstep:<name>", for PyTorch's profiler. `queue` completes the
  // future.
  TorchWork(int rank, ::c10d::OpType type, const std::string& name, const std::vector<at::Tensor>& inputs,
            Outputs outputs, std::shared_ptr<CompletionQueue> queue);

  // Once, by the thread that completes the operation: waiting threads return, then the queue completes the future.
  void complete(const Status& outcome);
  // Before complete(): where a message from any rank came from.
  void set_source(int rank) { source_.store(rank); }

  bool wait(std::chrono::milliseconds timeout = std::chrono::milliseconds(0)) override;
  void abort() override;
  int sourceRank() const override { return source_.load(); }
  std::vector<at::Tensor> result() override;
  // Its value is what DDP's hooks expect: the list of output tensors, or a list of lists if there is more than one.
  //
  // Called with the GIL, that is by a program in Python, it waits until the operation is complete: a callback that
  // Python adds then runs at once, on the thread that adds it. PyTorch's PowerSGD hook issues collectives in callbacks.
  // If these ran on another thread, at times of their own, ranks would issue them in different orders relative to those
  // of the other buckets, and gradients would be mixed up. (NCCL's futures are complete at once, for the same effect.)
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  void settle(c10::ivalue::Future& future) const;

  const std::string name_;
  const Outputs outputs_;
  const std::shared_ptr<CompletionQueue> queue_;
  std::atomic<int> source_{-1};
  // Guarded by the base class's mutex_.
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // created when it is asked for
  bool has_outcome_ = false;
  Status outcome_;  // constant once has_outcome_
};

}  // namespace lockstep::python
