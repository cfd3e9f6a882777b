// ProcessGroup: ranks that exchange tensors. The seam between DDP and whatever moves the bytes.
//
// DDP, the tensor collectives and the hooks know only this interface. Lockstep's own engine stands
// behind it as backend "lockstep"; other engines join by implementing it.
//
// Every rank in this interface (root, destination, source, the lists of new_group) is a rank of the group, from 0 to
// size() - 1. The calls of collectives.h take ranks of the world instead, as torch.distributed does;
// global_rank() and group_rank() translate.
#pragma once

#include <ATen/ATen.h>

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/status.h"
#include "lockstep/collectives/call_options.h"
#include "lockstep/collectives/operation.h"
#include "lockstep/collectives/types.h"
#include "lockstep/communicator/work.h"

namespace lockstep {

// One operation on tensors: an Operation (lockstep/collectives/operation.h) with tensors for buffers.
struct TensorOperation {
  OperationKind kind = OperationKind::barrier;
  at::Tensor input = {};  // undefined if this rank reads nothing
  // Undefined if this rank writes nothing. all_reduce, reduce and broadcast work in place: the input itself.
  at::Tensor output = {};
  ReduceOp op = ReduceOp::sum;
  int peer = -1;                         // the root, the destination of a send, or the source of a recv
  int tag = 0;                           // of send and recv
  std::vector<std::size_t> counts = {};  // of all_gather_v
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;

  // The output, or the input if there is no output.
  const at::Tensor& tensor() const { return output.defined() ? output : input; }
};

// The contract is Communicator's: all ranks issue the same collectives in the same order; operations
// are complete when their Work is; a failure ends the group on every rank. Every tensor passed here
// is dense, contiguous (as one block of memory), defined, and was accepted by check(); it must live,
// and must not be touched, until the Work is complete: the group keeps a reference. Thread-safe.
class ProcessGroup : public std::enable_shared_from_this<ProcessGroup> {
 public:
  virtual ~ProcessGroup() = default;

  virtual const std::string& backend() const = 0;  // "lockstep"
  // Both are -1 where this process is not a member (see new_group()).
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int local_rank() const = 0;
  virtual int local_size() const = 0;
  virtual std::string describe() const = 0;

  // Ok if tensors of this dtype and device can be moved and, where `op` is given, reduced; else why
  // not and what to do instead.
  virtual Status check(const at::Tensor& tensor, std::optional<ReduceOp> op) const = 0;

  // Issues any operation. The calls below are shorthands for it.
  virtual Work submit(const TensorOperation& operation) = 0;

  Work all_reduce(const at::Tensor& tensor, const ReduceOptions& options);
  Work reduce(const at::Tensor& tensor, int root, const ReduceOptions& options);
  Work broadcast(const at::Tensor& tensor, int root, const CallOptions& options);
  // output.numel() == size() * input.numel()
  Work all_gather(const at::Tensor& input, const at::Tensor& output, const CallOptions& options);
  // counts[r] elements come from rank r.
  Work all_gather_v(const at::Tensor& input, const at::Tensor& output, std::span<const std::size_t> counts,
                    const CallOptions& options);
  Work reduce_scatter(const at::Tensor& input, const at::Tensor& output, const ReduceOptions& options);
  // `output` (gather) and `input` (scatter) are undefined tensors on ranks other than the root.
  Work gather(const at::Tensor& input, const at::Tensor& output, int root, const CallOptions& options);
  Work scatter(const at::Tensor& input, const at::Tensor& output, int root, const CallOptions& options);
  Work all_to_all(const at::Tensor& input, const at::Tensor& output, const CallOptions& options);
  Work barrier(const CallOptions& options);
  Work send(const at::Tensor& tensor, int destination, int tag, const CallOptions& options);
  Work recv(const at::Tensor& tensor, int source, int tag, const CallOptions& options);

  // A flat, uninitialised tensor on `device`, in the memory there that this group reduces fastest: registered memory
  // on the CPU, that of the device's own allocator elsewhere. Outlives the group.
  virtual at::Tensor empty(std::int64_t count, at::ScalarType dtype, at::Device device = at::kCPU) = 0;
  // CPU memory of this kind as bytes, with whatever keeps them alive: for allocators.
  struct Memory {
    std::byte* data = nullptr;
    std::shared_ptr<void> owner;
  };
  virtual Memory allocate(std::size_t bytes) = 0;

  // A group of some ranks of this one, which get their new ranks in the order of the list. All members of the new group
  // must call it, and meet there; other ranks may, do not communicate, and get an object that knows that it is not
  // theirs: its rank() is -1, and whatever would communicate throws Error. Throws Error, on every rank that calls it,
  // for a list that names a rank twice or one that there is not.
  std::shared_ptr<ProcessGroup> new_group(std::span<const int> ranks, const std::string& name);
  // Throws Error, which says what to do, if this process is not a member.
  void require_member() const;

  // The world of a group is the one at the root, from which new_group() made it, directly or through other groups: as a
  // rule the default group.
  // The ranks of the world that are in this group, in the order of their ranks here. Non-members know them too.
  std::vector<int> global_ranks() const;
  // -1 if there is no such rank.
  int global_rank(int group_rank) const;
  int group_rank(int global_rank) const;

  virtual void abort(const std::string& reason) = 0;
  virtual Status health() const = 0;

  // A group of the same ranks for collectives that must not get between this group's, because they are
  // issued at times of their own: layers that communicate in forward and backward. Made at the first call
  // for `purpose`, which is collective; lives as long as this group.
  std::shared_ptr<ProcessGroup> companion(const std::string& purpose);

 protected:
  // What new_group() does on members, after its checks: a group of the ranks in `ranks`, one of which is this one.
  virtual std::shared_ptr<ProcessGroup> make_subgroup(std::span<const int> ranks, const std::string& name) = 0;

 private:
  // Constant once new_group() has returned the group. None: the ranks of the world are those of this group.
  std::optional<std::vector<int>> global_ranks_;
  std::mutex companions_mutex_;
  std::map<std::string, std::shared_ptr<ProcessGroup>> companions_;  // guarded by companions_mutex_
};

}  // namespace lockstep
