// Collectives on tensors: torch.distributed's, in C++.
//
// They take any strided CPU tensor of a supported type: non-contiguous tensors are copied in and out,
// empty and 0-dimensional ones work, bool is sent as bytes (sum means "or"), complex as pairs of reals
// (sum and avg only). Autograd does not record these calls. Unsupported tensors (sparse, int16, on
// another device than the backend's) throw Error, whose message suggests what to do.
//
// The plain form blocks and throws Error; the _async form returns a Work and keeps the tensors
// alive. All ranks of the group call the same collectives in the same order.
//
// `src` and `dst` are global ranks (of the default group) even if `group` is another group, as in PyTorch:
// get_global_rank(group, 0) is the global rank of a group's first rank. Lists of tensors are in the order of the
// group's ranks. On a group that this process is not in, a call does nothing, whatever its arguments, and its Work is
// complete; the first such call of each kind on the group logs a warning.
#pragma once

#include <vector>

#include "lockstep/ddp/init.h"

namespace lockstep {

// group: null means the default group.
struct TensorReduceOptions {
  ReduceOp op = ReduceOp::sum;
  std::shared_ptr<ProcessGroup> group = nullptr;
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};
struct TensorCallOptions {
  std::shared_ptr<ProcessGroup> group = nullptr;
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

void all_reduce(const at::Tensor& tensor, const TensorReduceOptions& options = {});
Work all_reduce_async(const at::Tensor& tensor, const TensorReduceOptions& options = {});

// The result arrives on `dst`, a global rank; on other ranks the tensor keeps its values.
void reduce(const at::Tensor& tensor, int dst, const TensorReduceOptions& options = {});
Work reduce_async(const at::Tensor& tensor, int dst, const TensorReduceOptions& options = {});

// `src` is a global rank.
void broadcast(const at::Tensor& tensor, int src, const TensorCallOptions& options = {});
Work broadcast_async(const at::Tensor& tensor, int src, const TensorCallOptions& options = {});

// outputs[r] is the tensor of rank r of the group; the outputs may differ in shape, if all ranks agree on them.
void all_gather(const std::vector<at::Tensor>& outputs, const at::Tensor& input, const TensorCallOptions& options = {});
Work all_gather_async(const std::vector<at::Tensor>& outputs, const at::Tensor& input,
                      const TensorCallOptions& options = {});
// output.numel() == size of the group * input.numel(), in the order of the group's ranks.
void all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input, const TensorCallOptions& options = {});
Work all_gather_into_tensor_async(const at::Tensor& output, const at::Tensor& input,
                                  const TensorCallOptions& options = {});

// output is the reduction of all ranks' inputs[rank in the group].
void reduce_scatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs,
                    const TensorReduceOptions& options = {});
Work reduce_scatter_async(const at::Tensor& output, const std::vector<at::Tensor>& inputs,
                          const TensorReduceOptions& options = {});
void reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input, const TensorReduceOptions& options = {});
Work reduce_scatter_tensor_async(const at::Tensor& output, const at::Tensor& input,
                                 const TensorReduceOptions& options = {});

// `outputs` (gather) and `inputs` (scatter) are used on the root only, and empty on other ranks. `dst` and `src` are
// global ranks; the lists are in the order of the group's ranks.
void gather(const at::Tensor& input, const std::vector<at::Tensor>& outputs, int dst,
            const TensorCallOptions& options = {});
Work gather_async(const at::Tensor& input, const std::vector<at::Tensor>& outputs, int dst,
                  const TensorCallOptions& options = {});
void scatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs, int src,
             const TensorCallOptions& options = {});
Work scatter_async(const at::Tensor& output, const std::vector<at::Tensor>& inputs, int src,
                   const TensorCallOptions& options = {});

// inputs[s] goes to rank s of the group; outputs[r] comes from rank r. All tensors have the same size.
void all_to_all(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                const TensorCallOptions& options = {});
Work all_to_all_async(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                      const TensorCallOptions& options = {});
void all_to_all_single(const at::Tensor& output, const at::Tensor& input, const TensorCallOptions& options = {});
Work all_to_all_single_async(const at::Tensor& output, const at::Tensor& input, const TensorCallOptions& options = {});

// How dimension 0 of a tensor is split between ranks: input[s] rows go to rank s of the group, output[r] rows come from
// rank r. Any of them may be 0.
struct AllToAllSplits {
  std::vector<std::int64_t> output;
  std::vector<std::int64_t> input;
};
// all_to_all_single with parts of different sizes. The ranks first compare their splits: if one rank expects another
// number of rows than the other rank sends to it, all ranks throw, and the group stays usable. The first call on a
// group creates a companion group for the messages.
void all_to_all_single(const at::Tensor& output, const at::Tensor& input, const AllToAllSplits& splits,
                       const TensorCallOptions& options = {});

// `dst` and `src` are global ranks.
void send(const at::Tensor& tensor, int dst, int tag = 0, const TensorCallOptions& options = {});
Work send_async(const at::Tensor& tensor, int dst, int tag = 0, const TensorCallOptions& options = {});
void recv(const at::Tensor& tensor, int src, int tag = 0, const TensorCallOptions& options = {});
Work recv_async(const at::Tensor& tensor, int src, int tag = 0, const TensorCallOptions& options = {});

void barrier(const TensorCallOptions& options = {});
Work barrier_async(const TensorCallOptions& options = {});
// A barrier whose error, on every rank, names the ranks that had not reached it at the deadline.
void monitored_barrier(std::chrono::milliseconds timeout, const std::shared_ptr<ProcessGroup>& group = nullptr);

}  // namespace lockstep
