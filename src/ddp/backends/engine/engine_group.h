// Lockstep's own engine as a ProcessGroup: backend "lockstep", for CPU tensors.
#pragma once

#include "lockstep/communicator/communicator.h"
#include "lockstep/ddp/process_group.h"

namespace lockstep::detail {

class EngineGroup final : public ProcessGroup {
 public:
  explicit EngineGroup(std::shared_ptr<Communicator> communicator) : communicator_(std::move(communicator)) {}

  const std::string& backend() const override;
  int rank() const override { return communicator_->rank(); }
  int size() const override { return communicator_->size(); }
  int local_rank() const override { return communicator_->local_rank(); }
  int local_size() const override { return communicator_->local_size(); }
  std::string describe() const override { return communicator_->describe(); }
  Status check(const at::Tensor& tensor, std::optional<ReduceOp> op) const override;

  Work submit(const TensorOperation& operation) override;

  at::Tensor empty(std::int64_t count, at::ScalarType dtype, at::Device device = at::kCPU) override;
  Memory allocate(std::size_t bytes) override;
  void abort(const std::string& reason) override { communicator_->abort(reason); }
  Status health() const override { return communicator_->health(); }

 protected:
  std::shared_ptr<ProcessGroup> make_subgroup(std::span<const int> ranks, const std::string& name) override;

 private:
  std::shared_ptr<Communicator> communicator_;
};

}  // namespace lockstep::detail
