// Options of DistributedDataParallel, and the statistics that it reports.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "lockstep/ddp/process_group.h"

namespace lockstep {

struct DdpOptions {
  // Null: the default group. If one loss depends on several models, and ranks may reach them in different orders
  // (unused outputs or parameters), give each a group of its own (new_group()): on one group that is a mismatch error.
  std::shared_ptr<ProcessGroup> process_group = nullptr;
  // Small gradients of one type and device are reduced together, in buckets of at most about this size; the first
  // bucket is smaller, so that communication starts early. A gradient of 1 MiB or more (on a GPU: of this size or more)
  // has a bucket of its own and is reduced in place.
  double bucket_cap_mb = 25;
  double first_bucket_mb = 1;
  // Take buffers (running statistics of batch norm) from rank 0 before each training forward, and before the first
  // forward without gradients after training. A rank on which another forward waits for its backward keeps its own.
  bool broadcast_buffers = true;
  // Check that all ranks have the same model, then take parameters and buffers from rank 0.
  bool init_sync = true;
  // Search the graph of each forward's output for parameters that will get no gradient. Costs a
  // traversal of the graph; needed only if the model does not always use all parameters.
  bool find_unused_parameters = false;
  // Promises that every step uses the same parameters the same number of times. Unused parameters and
  // re-entrant backward (activation checkpointing) then work without a search in every step.
  bool static_graph = false;
  // Small gradients stay in their bucket and .grad is a view of it, which saves a copy and its memory; but a .grad that
  // the program kept changes with the next backward. False: they are copied back into the tensor that autograd made.
  bool gradient_as_bucket_view = false;
  // Names (as in named_parameters() and named_buffers()) that DDP ignores.
  std::unordered_set<std::string> parameters_to_ignore = {};
  // Weight each rank's gradient by its number of samples (the first dimension of the first tensor passed
  // to forward, or set_sample_count()), so that unequal and empty batches give the gradient that one
  // process would compute from the whole batch. The loss must be a mean over the rank's samples. Under
  // no_sync() each batch is weighted separately (ranks exchange only their numbers of samples).
  bool sample_weighted = false;
  // Compare hashes of all parameters and buffers across ranks every this many steps; 0: never.
  int verify_every = 0;
  // How often to compare how long each rank computes, and to log a rank for which the others wait for more than a tenth
  // of a step. The same on all ranks; 0: never. Costs one small all-gather.
  std::chrono::milliseconds straggler_report_every{std::chrono::minutes(1)};
};

// Statistics of the last synchronised backward; times in seconds. They are measured on the host: for parameters on a
// GPU, work counts as done when it is in the GPU's queue, so communication and its overlap are not measured.
struct DdpLoggingData {
  int world_size = 1;
  int rank = 0;
  std::string backend;
  std::string comm_hook;  // empty: all-reduce
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool buckets_rebuilt = false;
  std::vector<std::int64_t> bucket_bytes;  // in the order in which they are reduced
  std::int64_t parameter_count = 0;        // tensors that get gradients
  std::int64_t parameter_bytes = 0;
  std::int64_t unused_parameters = 0;         // in the last backward, on this rank
  std::int64_t steps = 0;                     // synchronised backwards so far
  double forward_seconds = 0;                 // of the last forward
  double backward_compute_seconds = 0;        // from the end of forward to the last gradient
  double backward_communication_seconds = 0;  // from the first bucket's launch until all were reduced
  double overlap_seconds = 0;                 // communication while gradients were still computed
  double exposed_communication_seconds = 0;   // how long backward waited for communication at its end
  // The fraction of gradient bytes that were reduced in place, without a copy.
  double zero_copy_fraction = 0;
  // Bytes of large gradients that had to be copied because another tensor shares their memory (a view, another
  // parameter's gradient, a tensor that the program keeps), or because of their strides.
  std::int64_t copied_bytes = 0;
};
std::string to_string(const DdpLoggingData& data);

}  // namespace lockstep
