// Buckets without DDP, and a group that counts bytes: for the tests of hooks.
#pragma once

#include <cstring>
#include <functional>
#include <mutex>

#include "ddp/testing/test_ranks.h"
#include "lockstep/ddp/comm_hook.h"

namespace lockstep::testing {

// Runs body(rank, group) for every rank in a thread of its own.
inline void on_ranks(int size, const std::function<void(int, const Group&)>& body) {
  run_ranks(size, [&](const Group& group) { body(group->rank(), group); });
}

// Does with one bucket what DDP does in a backward.
inline void reduce_bucket(CommHook& hook, const GradBucket& bucket, ProcessGroup& group) {
  HookFuture future = hook.run(bucket, group);
  while (true) {
    for (const Work& work : future.works()) work.wait();
    if (!future.next()) return;
    future = future.next()();
  }
}

// Hands the gradients of several steps to a hook, as one bucket with one gradient. `parameter` stays the same.
class OneGradient {
 public:
  explicit OneGradient(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat)
      : parameter_(at::zeros(sizes, at::TensorOptions(dtype))) {}

  at::Tensor reduce(CommHook& hook, const at::Tensor& gradient, ProcessGroup& group) const {
    const at::Tensor buffer = gradient.clone().reshape({-1});
    reduce_bucket(hook, GradBucket(0, true, buffer, {buffer.view(parameter_.sizes())}, {parameter_}), group);
    return buffer.view(parameter_.sizes());
  }

 private:
  at::Tensor parameter_;
};

using HookFactory = std::function<std::shared_ptr<CommHook>()>;

// Every rank's result of reducing its gradient.
inline std::vector<at::Tensor> reduce_on_ranks(const HookFactory& make, const std::vector<at::Tensor>& gradients) {
  std::vector<at::Tensor> results(gradients.size());
  on_ranks(static_cast<int>(gradients.size()), [&](int rank, const Group& group) {
    const std::size_t r = static_cast<std::size_t>(rank);
    const OneGradient bucket(gradients[r].sizes(), gradients[r].scalar_type());
    results[r] = bucket.reduce(*make(), gradients[r], *group);
  });
  for (std::size_t r = 0; r < results.size(); ++r) results[r] = shared({results[r]}, static_cast<int>(r))[0];
  return results;
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

// Forwards everything, and adds up what a rank has to send if each collective uses the best algorithm.
class CountingGroup final : public ProcessGroup {
 public:
  explicit CountingGroup(Group group) : group_(std::move(group)) {}
  double bytes_sent() const { return bytes_; }

  const std::string& backend() const override { return group_->backend(); }
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  int local_rank() const override { return group_->local_rank(); }
  int local_size() const override { return group_->local_size(); }
  std::string describe() const override { return group_->describe(); }
  Status check(const at::Tensor& tensor, std::optional<ReduceOp> op) const override {
    return group_->check(tensor, op);
  }
  Work submit(const TensorOperation& operation) override {
    switch (operation.kind) {
      case OperationKind::all_reduce: count(2 * operation.input.nbytes()); break;
      case OperationKind::all_gather: count(operation.output.nbytes()); break;
      case OperationKind::all_to_all: count(operation.input.nbytes()); break;
      // A hook that uses another kind needs it counted first.
      default: throw std::logic_error("CountingGroup does not count this operation");
    }
    return group_->submit(operation);
  }
  at::Tensor empty(std::int64_t count, at::ScalarType dtype, at::Device device) override {
    return group_->empty(count, dtype, device);
  }
  Memory allocate(std::size_t bytes) override { return group_->allocate(bytes); }
  void abort(const std::string& reason) override { group_->abort(reason); }
  Status health() const override { return group_->health(); }

 protected:
  Group make_subgroup(std::span<const int> ranks, const std::string& name) override {
    return group_->new_group(ranks, name);
  }

 private:
  void count(std::size_t bytes) { bytes_ += static_cast<double>(bytes) * (size() - 1) / size(); }

  const Group group_;
  double bytes_ = 0;
};

}  // namespace lockstep::testing
