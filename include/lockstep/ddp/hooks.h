// The communication hooks that come with Lockstep.
//
//   ddp.register_comm_hook(lockstep::bf16_compress_hook());
//
// All of them give the same bits on every rank, also on different hosts of one architecture; noop_hook and
// post_local_sgd_hook do not, by design. They fall back to the plain all-reduce for buckets of a type that they do not
// compress; int8_compress_hook and power_sgd_hook also for buckets that are not on the CPU. In a group of one rank they
// do not change gradients. Use one hook object for each model: some keep state between steps. docs/hooks.md helps to
// choose one.
//
// Below, g_r is rank r's gradient, n the number of ranks, mean = sum of g_r / n the exact average, and
// mean|g| the average of the absolute values.
#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/ddp/comm_hook.h"

namespace lockstep {

// The same as DDP without a hook: the average, in the bucket's own type.
std::shared_ptr<CommHook> all_reduce_hook();

// Half the traffic of f32. Gradients are divided by n first, so that only an average beyond the range of
// the type overflows (f16: 65504), then sent as 16 bits, summed in f32 by Lockstep's engine, and rounded
// once. |result - mean| <= 2.1u mean|g| + (n + 1) d, where fp16 has u = 2^-11, d = 2^-25, and bf16
// has u = 2^-8, d = 2^-133. inf and NaN of any rank arrive as inf and NaN. For f32 and f64 buckets.
std::shared_ptr<CommHook> fp16_compress_hook();
std::shared_ptr<CommHook> bf16_compress_hook();

struct Int8Options {
  // Gradients that share a scale: a multiple of 16. Smaller is more exact, at 4 bytes each.
  std::int64_t block_size = 256;
};
// A quarter of the traffic of f32. Every block is sent as 8-bit integers times a scale; each rank averages
// a chunk in f32, in rank order, and sends it to all ranks in the same form.
// |result - mean| <= (average over ranks of the block's largest |g_r|) / 127 * (1 + 2^-12) + 3e-36.
// An inf or NaN on any rank makes its whole block NaN on all ranks. For f32 buckets.
std::shared_ptr<CommHook> int8_compress_hook(const Int8Options& options = {});

struct PowerSgdOptions {
  // Columns of the two factors that represent a gradient. 1 to 4 are usual.
  std::int64_t matrix_approximation_rank = 1;
  // Steps of plain all-reduce before compression begins: early gradients change fast.
  std::int64_t start_iteration = 1000;
  // A gradient is compressed only if that makes it at least this many times smaller.
  double min_compression_rate = 2;
  // Add what compression lost to the next step's gradient. Costs as much memory as the gradients. Without
  // it, the model converges to a worse result.
  bool use_error_feedback = true;
  // Begin with the factor of the previous step instead of a random one.
  bool warm_start = true;
  // The same on all ranks.
  std::uint64_t seed = 0;
};
// Low-rank approximation (Vogels et al., PowerSGD, 2019): a gradient seen as a matrix of a rows and b columns
// costs rank * (a + b) numbers instead of a * b. 1-D gradients, and those that compression does not make small
// enough, are averaged as they are. There is no bound on a step's error. With error feedback, what is lost is
// sent later: after every step, the sum of the gradients returned so far plus the average of the ranks' error
// memories equals the sum of the exact averages so far. An inf or NaN on any rank makes that gradient NaN in
// this step on all ranks and clears its error memory, so that a program that skips the step continues as before.
// For f32 buckets.
std::shared_ptr<CommHook> power_sgd_hook(const PowerSgdOptions& options = {});

// No communication: every rank keeps its own gradients, and replicas diverge. For measuring the cost of
// communication.
std::shared_ptr<CommHook> noop_hook();

struct PostLocalSgdOptions {
  // Steps in which gradients are averaged over all ranks.
  std::int64_t start_step = 1000;
  // After that: over this group (usually the ranks of one host). Null: not at all. Throws Error if this rank is not a
  // member.
  std::shared_ptr<ProcessGroup> subgroup = nullptr;
};
// From start_step on, replicas train on their own, or with their subgroup, and diverge until a
// PeriodicModelAverager (model_averaging.h) averages them. Do not use DdpOptions::verify_every with it.
std::shared_ptr<CommHook> post_local_sgd_hook(const PostLocalSgdOptions& options = {});

}  // namespace lockstep
