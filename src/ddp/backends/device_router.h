// Several groups of the same ranks as one: each operation goes to the group for its tensor's device.
// Behind "cpu:lockstep,cuda:nccl".
#pragma once

#include <map>
#include <string>

#include "lockstep/ddp/process_group.h"

namespace lockstep::detail {

// Operations of different devices run independently of each other: only those of one device are in order.
// barrier() waits for all ranks on every group. When one group fails, the router's health is that group's.
class DeviceRouter final : public ProcessGroup {
 public:
  // By kind of device ("cpu", "cuda"); at least one. The first in order of name ("cpu" before "cuda") serves the calls
  // that do not depend on a device.
  DeviceRouter(std::string backend, std::map<std::string, std::shared_ptr<ProcessGroup>> groups);

  const std::string& backend() const override { return backend_; }
  int rank() const override { return first().rank(); }
  int size() const override { return first().size(); }
  int local_rank() const override { return first().local_rank(); }
  int local_size() const override { return first().local_size(); }
  std::string describe() const override;
  Status check(const at::Tensor& tensor, std::optional<ReduceOp> op) const override;

  Work submit(const TensorOperation& operation) override;

  at::Tensor empty(std::int64_t count, at::ScalarType dtype, at::Device device = at::kCPU) override;
  // Of the first group.
  Memory allocate(std::size_t bytes) override { return first().allocate(bytes); }
  void abort(const std::string& reason) override;
  Status health() const override;

  // The group for this device, or null.
  std::shared_ptr<ProcessGroup> group_for(const at::Device& device) const;

 protected:
  std::shared_ptr<ProcessGroup> make_subgroup(std::span<const int> ranks, const std::string& name) override;

 private:
  ProcessGroup& first() const { return *groups_.begin()->second; }
  ProcessGroup& for_tensor(const at::Tensor& tensor) const;

  const std::string backend_;
  const std::map<std::string, std::shared_ptr<ProcessGroup>> groups_;
};

}  // namespace lockstep::detail
