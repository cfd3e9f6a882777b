// Lockstep's own engine as a ProcessGroup: backend "lockstep", for CPU tensors.
#pragma once

#include "lockstep/communicator/communicator.h"
#include "lockstep/ddp/process_group.h"

namespace lockstep::detail {

class EngineGroup final : public ProcessGroup {
 public:
  explicit EngineGroup(std::shared_ptr<Communicator> group) : group_(std::move(group)) {}

  const std::string& backend() const override;
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  int local_rank() const override { return group_->local_rank(); }
  int local_size() const override { return group_->local_size(); }
  std::string describe() const override { return group_->describe(); }
  Status check(const at::Tensor& tensor, std::optional<ReduceOp> op) const override;

  Work all_reduce(const at::Tensor& tensor, const ReduceOptions& options) override;
  Work reduce(const at::Tensor& tensor, int root, const ReduceOptions& options) override;
  Work broadcast(const at::Tensor& tensor, int root, const CallOptions& options) override;
  Work all_gather(const at::Tensor& input, const at::Tensor& output, const CallOptions& options) override;
  Work all_gather_v(const at::Tensor& input, const at::Tensor& output, std::span<const std::size_t> counts,
                    const CallOptions& options) override;
  Work reduce_scatter(const at::Tensor& input, const at::Tensor& output, const ReduceOptions& options) override;
  Work gather(const at::Tensor& input, const at::Tensor& output, int root, const CallOptions& options) override;
  Work scatter(const at::Tensor& input, const at::Tensor& output, int root, const CallOptions& options) override;
  Work all_to_all(const at::Tensor& input, const at::Tensor& output, const CallOptions& options) override;
  Work barrier(const CallOptions& options) override;
  Work send(const at::Tensor& tensor, int destination, int tag, const CallOptions& options) override;
  Work recv(const at::Tensor& tensor, int source, int tag, const CallOptions& options) override;

  at::Tensor empty(std::int64_t count, at::ScalarType dtype, at::Device device = at::kCPU) override;
  Memory allocate(std::size_t bytes) override;
  void abort(const std::string& reason) override { group_->abort(reason); }
  Status health() const override { return group_->health(); }

 protected:
  std::shared_ptr<ProcessGroup> make_subgroup(std::span<const int> ranks, const std::string& name) override;

 private:
  std::shared_ptr<Communicator> group_;
};

}  // namespace lockstep::detail
