// MPI as a ProcessGroup: backends "mpi" (the MPI whose mpirun started the process), "openmpi" and "mpich". docs/mpi.md.
#pragma once

#include <memory>
#include <string>

#include "lockstep/ddp/init.h"
#include "lockstep/ddp/process_group.h"
#include "mpi/mpi_communicator.h"

namespace lockstep::detail {

// What EngineGroup is for Lockstep's own engine. A failure leaves tensors alive that MPI may still write to, for ever.
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
  Work barrier(const CallOptions& options) override { return communicator_->barrier(options); }
  Work send(const at::Tensor& tensor, int destination, int tag, const CallOptions& options) override;
  Work recv(const at::Tensor& tensor, int source, int tag, const CallOptions& options) override;

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

// Whether a plug-in for `backend` is here; loads nothing.
Status mpi_available(const std::string& backend);
// Collective over all processes that mpirun started. Rank and size are MPI's: those that `options` or the environment
// name must agree with them. Throws Error.
std::shared_ptr<ProcessGroup> make_mpi_group(const ProcessGroupOptions& options, const std::string& backend);

}  // namespace lockstep::detail
