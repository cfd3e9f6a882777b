// Collectives that autograd differentiates: torch.distributed.nn.functional, in C++.
//
//   auto all = lockstep::functional::all_gather_into_tensor(features);    // the features of every rank
//   auto loss = contrastive_loss(features, all);
//   loss.backward();                                                      // gradients flow back to every rank
//
// Each call returns a new tensor and leaves its input as it is. Gradients are those of the sum of all ranks' losses:
// a rank's input gets what the losses of all ranks contribute to it. DistributedDataParallel then averages the
// parameters' gradients, so that the result is the gradient of the mean of all ranks' losses. backward(create_graph)
// works, too.
//
// Every call is a collective, and so is its backward: all ranks of the group make the same calls in the same order,
// and use each result in what they call backward() on. A rank that does not is named by the error of the others when
// their deadline passes. It does not matter whether a rank's own input requires a gradient. Backward communicates on a
// companion group, so it does not interfere with DDP; the first call on a group creates it.
//
// Ranks (`src`, `dst`), groups, time-outs, and the tensors that are accepted: as in collectives.h. Errors throw Error.
// Only sum and avg have a derivative here: other operations throw. On a group that this process is not in, every call
// throws.
#pragma once

#include <vector>

#include "lockstep/ddp/collectives.h"

namespace lockstep::functional {

at::Tensor all_reduce(const at::Tensor& input, const TensorReduceOptions& options = {});
// Zeros on ranks other than `dst`.
at::Tensor reduce(const at::Tensor& input, int dst, const TensorReduceOptions& options = {});
// The input of `src`. Inputs of other ranks must have its shape and type; their values do not matter.
at::Tensor broadcast(const at::Tensor& input, int src, const TensorCallOptions& options = {});

// All ranks' inputs, which have the same shape: as a list, or one after the other along dimension 0.
std::vector<at::Tensor> all_gather(const at::Tensor& input, const TensorCallOptions& options = {});
at::Tensor all_gather_into_tensor(const at::Tensor& input, const TensorCallOptions& options = {});

// The reduction of all ranks' inputs[rank in the group], or of that part of dimension 0.
at::Tensor reduce_scatter(const std::vector<at::Tensor>& inputs, const TensorReduceOptions& options = {});
at::Tensor reduce_scatter_tensor(const at::Tensor& input, const TensorReduceOptions& options = {});

// All ranks' inputs on `dst`; zeros of the same shapes elsewhere.
std::vector<at::Tensor> gather(const at::Tensor& input, int dst, const TensorCallOptions& options = {});
// inputs[rank in the group] of `src`. The other ranks pass tensors of the same shapes, whose values do not matter.
at::Tensor scatter(const std::vector<at::Tensor>& inputs, int src, const TensorCallOptions& options = {});

// Result r comes from rank r of the group: its inputs[this rank]. All tensors have the same shape.
std::vector<at::Tensor> all_to_all(const std::vector<at::Tensor>& inputs, const TensorCallOptions& options = {});
// The same for parts of dimension 0, of equal size, or of the sizes in `splits`.
at::Tensor all_to_all_single(const at::Tensor& input, const TensorCallOptions& options = {});
at::Tensor all_to_all_single(const at::Tensor& input, const AllToAllSplits& splits,
                             const TensorCallOptions& options = {});

}  // namespace lockstep::functional
