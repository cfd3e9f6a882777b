// Ranks that communicate over MPI. MpiGroup builds a process group on it. Without torch.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/collectives/call_options.h"
#include "lockstep/communicator/work.h"
#include "mpi/mpi_job.h"

namespace lockstep::mpi {

// The contract of the calls is Communicator's (lockstep/communicator/communicator.h), with these differences:
// - avg is the sum, divided.
// - Whether all ranks get the same bits, and the same in every run, is up to MPI; but sums and products of 16-bit
//   floats are Lockstep's own (half_reduction.h).
// - Ranks that call different operations are detected if MPI waits in one of them; if MPI completes them, they are not.
// - After a failure memory that MPI may still write to is never freed.
// - A call takes at most 2^31 - 1 elements; tags are from 0 to what MPI allows (at least 32767).
// `memory` keeps the buffers alive until the operation is over. Thread-safe.
class MpiCommunicator {
 public:
  static Result<std::shared_ptr<MpiCommunicator>> create_world(const std::string& backend,
                                                               const CommunicatorOptions& options);
  // Waits for the operations that were issued, within their deadlines, and leaves the group.
  ~MpiCommunicator();
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  int rank() const { return state_->watch->rank(); }
  int size() const { return state_->watch->size(); }
  int local_rank() const { return state_->watch->local_rank(); }
  int local_size() const { return state_->watch->local_size(); }
  std::string describe() const;
  const std::string& library() const { return state_->library; }  // "Open MPI v4.1.4"

  using Memory = std::shared_ptr<void>;
  Work submit(const Operation& operation, Memory memory = {});

  // A group of some ranks of this one; only its members call it. Members of several groups make them in the same order.
  Result<std::shared_ptr<MpiCommunicator>> new_group(std::span<const int> ranks, const std::string& name);
  void abort(const std::string& reason);
  Status health() const;

 private:
  // What outlives the communicator if its last owner is the progress thread.
  struct State {
    std::shared_ptr<MpiJob> job;
    std::shared_ptr<Communicator> watch;
    std::shared_ptr<OuterOperations> outer;
    std::shared_ptr<Channel> channel;
    lockstep_mpi_comm* comm = nullptr;
    std::string library;
    std::chrono::milliseconds timeout{0};
  };
  explicit MpiCommunicator(std::shared_ptr<State> state) : state_(std::move(state)) {}
  static std::shared_ptr<MpiCommunicator> make(const MpiWorld& world, const std::string& name,
                                               std::chrono::milliseconds timeout);
  static void close(const State& state);

  const std::shared_ptr<State> state_;
};

}  // namespace lockstep::mpi
