// Communication hooks: a hook replaces the all-reduce of a bucket of gradients.
//
// DDP calls a hook during backward, when all gradients of a bucket are ready, in the order of buckets
// (which is the same on all ranks). The hook returns a HookFuture: what to wait for, and what to do
// then. Continuations run at the end of backward, on the thread that runs backward, bucket by bucket
// in the same order on all ranks. So a hook may issue collectives both immediately and in a
// continuation; their order is the same on all ranks. Buckets of one hook are never processed
// concurrently.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/ddp/process_group.h"

namespace lockstep {

// A bucket as a hook sees it. buffer() holds this rank's gradients one after the other. Its content
// when the future is complete becomes the gradients on this rank, so all ranks must leave the same
// values in it.
class GradBucket {
 public:
  GradBucket(std::size_t index, bool is_last, at::Tensor buffer, std::vector<at::Tensor> gradients,
             std::vector<at::Tensor> parameters)
      : index_(index),
        is_last_(is_last),
        buffer_(std::move(buffer)),
        gradients_(std::move(gradients)),
        parameters_(std::move(parameters)) {}

  std::size_t index() const { return index_; }
  bool is_last() const { return is_last_; }
  // Flat, of the gradients' dtype.
  const at::Tensor& buffer() const { return buffer_; }
  // Views of buffer(), shaped as the parameters.
  const std::vector<at::Tensor>& gradients() const { return gradients_; }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  std::size_t index_;
  bool is_last_;
  at::Tensor buffer_;
  std::vector<at::Tensor> gradients_;
  std::vector<at::Tensor> parameters_;
};

// What a hook waits for, and what it does next.
class HookFuture {
 public:
  using Continuation = std::function<HookFuture()>;
  // The bucket is done.
  HookFuture() = default;
  // The bucket is done when `work` is.
  HookFuture(Work work) : works_{std::move(work)} {}
  // When all of `works` are complete, `next` runs and returns what follows.
  HookFuture(std::vector<Work> works, Continuation next) : works_(std::move(works)), next_(std::move(next)) {}

  const std::vector<Work>& works() const { return works_; }
  const Continuation& next() const { return next_; }

 private:
  std::vector<Work> works_;
  Continuation next_;
};

class CommHook {
 public:
  virtual ~CommHook() = default;
  virtual const char* name() const = 0;
  // May modify bucket.buffer(), which is valid until the future is complete.
  virtual HookFuture run(const GradBucket& bucket, ProcessGroup& group) = 0;
};

// Makes a hook from a function.
std::shared_ptr<CommHook> make_comm_hook(std::string name,
                                         std::function<HookFuture(const GradBucket&, ProcessGroup&)> function);

}  // namespace lockstep
