// Backend "lockstep" of torch.distributed: c10d's interface on a Communicator.
//
// A c10d::ProcessGroup in LibTorch 1.13, a c10d::Backend in 2.x. Calls return at once with a Work; all ranks must issue
// the same collectives in the same order. Tensors are dense CPU tensors of any type (reductions: the types of DType,
// and bool); all_reduce also takes sparse ones. Tensors that are not contiguous are copied.
//
// When an operation fails (a peer is lost, a deadline passes, ranks disagree), the group is dead on every rank: each
// Work's wait() throws the same sentence, which names the rank, its host and process, and the operation. Arguments that
// can never work throw ValueError at once and leave the group usable.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/communicator/communicator.h"
#include "lockstep/ddp/backends.h"
#include "python/operation_queue.h"
#include "python/sequences.h"

namespace lockstep::python {

struct GroupArguments {
  c10::intrusive_ptr<::c10d::Store> store;
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout{0};  // of forming the group, and of operations that set none
  std::string name = {};                 // equal on all ranks; in messages
};

class TorchBackend final : public C10dBackend {
 public:
  using WorkPointer = c10::intrusive_ptr<::c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;

  // Meets the other ranks in the store. The ranks' secret is that of the environment; if there is none, they agree on a
  // random one through the store. Blocks until all ranks are connected, at most for the timeout.
  static c10::intrusive_ptr<TorchBackend> create(const GroupArguments& arguments);
  TorchBackend(std::shared_ptr<Communicator> group, std::chrono::milliseconds timeout);
  // Completes what was issued and leaves the group. Releases the GIL meanwhile.
  ~TorchBackend() override;

  const std::string getBackendName() const override { return "lockstep"; }
  Communicator& group() { return *group_; }

  WorkPointer broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& options) override;
  WorkPointer allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_coalesced(Tensors& tensors, const ::c10d::AllreduceCoalescedOptions& options) override;
  WorkPointer reduce(Tensors& tensors, const ::c10d::ReduceOptions& options) override;
  WorkPointer allgather(TensorLists& outputs, Tensors& inputs, const ::c10d::AllgatherOptions& options) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input, const ::c10d::AllgatherOptions& options) override;
  WorkPointer allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                  const ::c10d::AllgatherOptions& options) override;
  WorkPointer gather(TensorLists& outputs, Tensors& inputs, const ::c10d::GatherOptions& options) override;
  WorkPointer scatter(Tensors& outputs, TensorLists& inputs, const ::c10d::ScatterOptions& options) override;
  WorkPointer reduce_scatter(Tensors& outputs, TensorLists& inputs,
                             const ::c10d::ReduceScatterOptions& options) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const ::c10d::ReduceScatterOptions& options) override;
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                            std::vector<std::int64_t>& input_splits, const ::c10d::AllToAllOptions& options) override;
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const ::c10d::AllToAllOptions& options) override;
  WorkPointer send(Tensors& tensors, int destination, int tag) override;
  WorkPointer recv(Tensors& tensors, int source, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;
  WorkPointer barrier(const ::c10d::BarrierOptions& options) override;
  void monitoredBarrier(const ::c10d::BarrierOptions& options, bool wait_all_ranks) override;
  // The number of collectives that this rank has issued; nothing has to be agreed on for it.
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return issued_.load(); }

  // These override functions that only some versions of LibTorch have, so they lack the keyword.
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const ::c10d::AllgatherOptions& options);
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const ::c10d::ReduceScatterOptions& options);
  WorkPointer allreduce_sparse(Tensors& tensors, const ::c10d::AllreduceOptions& options);
  void setTimeout(std::chrono::milliseconds timeout) { timeout_.store(timeout); }
  void abort() { group_->abort("torch.distributed aborted the group"); }
  void shutdown() {}

 private:
  Task begin(::c10d::OpType type, const std::string& name, const Tensors& inputs, TensorLists outputs) const;
  WorkPointer issue(Task task);
  WorkPointer issue_message(Task task);
  std::chrono::milliseconds timeout_of(std::chrono::milliseconds requested) const;

  // Each adds operations to the task.
  void add_all_reduce(Task& task, const at::Tensor& tensor, const ::c10d::ReduceOp& op, Timeout timeout) const;
  void add_all_gather(Task& task, const at::Tensor& input, const Tensors& outputs, Timeout timeout) const;
  void add_all_gather_flat(Task& task, const at::Tensor& input, const at::Tensor& output, Timeout timeout) const;
  void add_reduce_scatter(Task& task, const Tensors& inputs, const at::Tensor& output, const ::c10d::ReduceOp& op,
                          Timeout timeout) const;
  void add_reduce_scatter_flat(Task& task, const at::Tensor& input, const at::Tensor& output,
                               const ::c10d::ReduceOp& op, Timeout timeout) const;
  void check_list(const std::string& operation, const Tensors& tensors, const at::Tensor& like) const;

  // Constant until the destructor.
  std::shared_ptr<Communicator> group_;
  std::shared_ptr<CompletionQueue> completions_;
  std::unique_ptr<OperationQueue> queue_;
  std::atomic<std::chrono::milliseconds> timeout_;  // of operations that set none
  std::atomic<std::uint64_t> issued_{0};
};

}  // namespace lockstep::python
