// The job's default process group, as in PyTorch.
//
//   lockstep::init_process_group();          // RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
//   ...
//   lockstep::destroy_process_group();
// or, for the length of a scope: lockstep::ProcessGroupScope job;
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/ddp/process_group.h"

namespace lockstep {

class Communicator;

struct ProcessGroupOptions {
  // "lockstep", "gloo", "nccl", "mpi", ..., or one for each kind of device, "cpu:lockstep,cuda:nccl". Empty:
  // LOCKSTEP_BACKEND, else lockstep for CPU tensors, and nccl for CUDA tensors if this LibTorch has it and there
  // is a GPU. docs/backends.md helps to choose.
  std::string backend = {};
  // "env://", "tcp://host:port", "file:///path"; rank and world size may be given in it or below.
  std::string init_method = "env://";
  std::optional<int> rank = std::nullopt;
  std::optional<int> world_size = std::nullopt;
  // Deadline of an operation that sets none of its own.
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};
  // How long forming the group may take.
  std::chrono::milliseconds init_timeout{std::chrono::minutes(5)};
  // A peer from which nothing was heard for this long is lost.
  std::chrono::milliseconds peer_timeout{std::chrono::seconds(10)};
  std::string group_name = "world";
};

// Connects to the other ranks and creates the default group. Blocks until all ranks have joined, at most for
// init_timeout. Throws Error, also if there is a default group already.
std::shared_ptr<ProcessGroup> init_process_group(const ProcessGroupOptions& options = {});
// Releases the default group: waits for the operations that were issued and notifies the peers. Objects that still
// hold it (a DistributedDataParallel) keep it alive until they are destroyed. Does nothing if there is none.
void destroy_process_group();

bool is_initialized();
// Of the default group, or of `group`. Throw Error if there is neither. Rank and size are -1 for a group that this
// process is not in.
int get_rank(const std::shared_ptr<ProcessGroup>& group = nullptr);
int get_world_size(const std::shared_ptr<ProcessGroup>& group = nullptr);
const std::string& get_backend(const std::shared_ptr<ProcessGroup>& group = nullptr);
// `group` itself, or the default group, to communicate with. Throws Error if there is none, or if this process is not
// in the group.
std::shared_ptr<ProcessGroup> group_or_default(const std::shared_ptr<ProcessGroup>& group = nullptr);

// A subgroup of the default group, in ascending order, as in PyTorch: the lowest of `ranks` becomes rank 0 of the new
// group, whatever their order. Every rank may call it. Those that are not in `ranks` do not communicate and get an
// object for non-members (see subgroups.h). Throws Error, on every rank, if a rank is named twice or does not exist.
// subgroups.h has functions that create several subgroups at once and translate ranks.
std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks, const std::string& name = "");

// A process group on a communicator that the caller has created.
std::shared_ptr<ProcessGroup> make_process_group(std::shared_ptr<Communicator> group);

// The default group for the length of a scope.
class ProcessGroupScope {
 public:
  explicit ProcessGroupScope(const ProcessGroupOptions& options = {}) : group_(init_process_group(options)) {}
  ~ProcessGroupScope() {
    group_.reset();
    destroy_process_group();
  }
  ProcessGroupScope(const ProcessGroupScope&) = delete;
  ProcessGroupScope& operator=(const ProcessGroupScope&) = delete;

  const std::shared_ptr<ProcessGroup>& group() const { return group_; }
  int rank() const { return group_->rank(); }
  int world_size() const { return group_->size(); }

 private:
  std::shared_ptr<ProcessGroup> group_;
};

}  // namespace lockstep
