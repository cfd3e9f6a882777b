// MPI as a ProcessGroup: backends "mpi" (the MPI whose mpirun started the process), "openmpi" and "mpich". docs/mpi.md.
#pragma once

#include <memory>
#include <string>

#include "lockstep/ddp/init.h"
#include "lockstep/ddp/process_group.h"
#include "mpi/mpi_communicator.h"

namespace lockstep::detail {

// The counterpart of EngineGroup. After a failure, tensors that MPI may still write to are never freed.
class MpiGroup final : public ProcessGroup {
 public:
  MpiGroup(std::shared_ptr<mpi::MpiCommunicator> communicator, std::string backend)
      : communicator_(std::move(communicator)), backend_(std::move(backend)) {}

  const std::string& backend() const override { return backend_; }
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
  const std::shared_ptr<mpi::MpiCommunicator> communicator_;
  const std::string backend_;
};

// Whether a plug-in for `backend` is installed; loads nothing.
Status mpi_available(const std::string& backend);
// Collective over all processes that mpirun started. Rank and size are MPI's: those that `options` or the environment
// name must agree with them. Throws Error.
std::shared_ptr<ProcessGroup> make_mpi_group(const ProcessGroupOptions& options, const std::string& backend);

}  // namespace lockstep::detail
