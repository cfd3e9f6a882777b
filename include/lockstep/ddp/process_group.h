// ProcessGroup: a group of ranks that exchange tensors, on any backend.
//
// DDP, the tensor collectives and the hooks use only this interface. Backend "lockstep" implements it on Lockstep's own
// engine; the other backends implement it on theirs.
//
// Every rank in this interface (root, destination, source, the lists of new_group) is a rank of the group, from 0 to
// size() - 1. The calls of collectives.h take global ranks instead, as torch.distributed does; global_rank() and
// group_rank() translate.
#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
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
// are complete when their Work is; a failure ends the group on every rank. Every tensor passed to it
// must be defined, dense, contiguous in memory, and accepted by check(), and must not be accessed until
// the Work is complete. The group keeps a reference to it until then. Thread-safe.
class ProcessGroup : public std::enable_shared_from_this<ProcessGroup> {
 public:
  virtual ~ProcessGroup() = default;

  virtual const std::string& backend() const = 0;  // "lockstep"
  // rank() and size() are -1 if this process is not a member (see new_group()).
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int local_rank() const = 0;
  virtual int local_size() const = 0;
  virtual std::string describe() const = 0;

  // Ok if tensors of this dtype and device can be sent and, if `op` is given, reduced; else the reason,
  // and what to do instead.
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
  // CPU memory of this kind as bytes, and the object that keeps it alive: for allocators.
  struct Memory {
    std::byte* data = nullptr;
    std::shared_ptr<void> owner;
  };
  virtual Memory allocate(std::size_t bytes) = 0;

  // A subgroup of this group, whose ranks are numbered in the order of the list. All members of the subgroup must call
  // it, and it connects them. Other ranks may call it too: they do not communicate and get an object for non-members,
  // whose rank() is -1 and whose operations throw Error. Throws Error, on every rank that calls it, if a rank is named
  // twice or does not exist.
  std::shared_ptr<ProcessGroup> new_group(std::span<const int> ranks, const std::string& name);
  // Throws Error, which suggests what to do, if this process is not a member.
  void require_member() const;

  // The world of a group is the group from which new_group() created it, directly or through other groups: as a rule
  // the default group.
  // The global ranks of this group's members, in the order of their ranks here. Also available to non-members.
  std::vector<int> global_ranks() const;
  // -1 if there is no such rank.
  int global_rank(int group_rank) const;
  int group_rank(int global_rank) const;

  virtual void abort(const std::string& reason) = 0;
  virtual Status health() const = 0;

  // A companion group: the same ranks, for collectives that must not be interleaved with this group's because
  // they are issued at times of their own, as by layers that communicate in forward and backward. Created by
  // the first call for `purpose`, which is collective; lives as long as this group.
  std::shared_ptr<ProcessGroup> companion(const std::string& purpose);

  // 1, 2, 3, ...: ranks that call it equally often get equal numbers. Does not communicate. For labels by which
  // collectives of different models or calls can be told apart.
  int next_label() { return ++labels_; }
  int label_count() const { return labels_; }

 protected:
  // What new_group() does on members, after its checks: a group of the ranks in `ranks`, which include this one.
  virtual std::shared_ptr<ProcessGroup> make_subgroup(std::span<const int> ranks, const std::string& name) = 0;

 private:
  // Constant once new_group() has returned the group. nullopt: global ranks are the ranks of this group.
  std::optional<std::vector<int>> global_ranks_;
  std::atomic<int> labels_{0};
  std::mutex companions_mutex_;
  std::map<std::string, std::shared_ptr<ProcessGroup>> companions_;  // guarded by companions_mutex_
};

}  // namespace lockstep
