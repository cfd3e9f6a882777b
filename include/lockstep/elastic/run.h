// Elastic training: when a process is lost, the others continue in place from the last committed step. Newcomers can
// join while the training runs.
//
//   lockstep::checkpoint::State state{.model = *model, .optimizer = optimizer};
//   state.sampler = lockstep::DistributedSamplerState{.seed = 1, .dataset_size = 60000};
//   lockstep::elastic::run(state, [&](lockstep::elastic::Context& context) {
//     lockstep::DistributedDataParallel ddp(model, {.sample_weighted = true});
//     while (context.epoch() < epochs) {
//       while (auto indices = context.next_batch(64)) {
//         auto batch = data.batch(*indices);
//         optimizer.zero_grad();
//         torch::cross_entropy_loss(ddp(batch.data), batch.target).backward();
//         context.step(optimizer);
//         context.commit();
//       }
//       context.next_epoch();
//     }
//   });
//
// Start it with `lockstep run --elastic --nproc-per-node 4 ./train`, which also starts replacements.
//
// When a peer is lost, the call that waits for it throws, and run() leaves the function. The unfinished step is dropped
// and its samples are distributed again. The survivors agree on the members of the next generation and, if their states
// differ, take that of the most advanced member. Then the function is called again with the new ranks. So create
// everything that depends on the group inside the function, and everything that must survive outside of it, in the
// State. docs/failure_model.md lists what is lost in which case.
//
// ZeroRedundancyOptimizer and the PowerSGD hook are refused: they keep state that only one rank has.
//
// Committed steps use each sample of an epoch exactly once, whichever processes die and whenever. The last batches of
// an epoch may therefore be of unequal size: use DDP with sample_weighted.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/snapshot.h"
#include "lockstep/ddp/learning_rate.h"
#include "lockstep/ddp/process_group.h"

namespace lockstep::elastic {

using checkpoint::State;

struct Options {
  // With fewer than min_ranks, the survivors wait for newcomers. LOCKSTEP_MIN_RANKS and LOCKSTEP_MAX_RANKS (set by the
  // launcher) override these two.
  int min_ranks = 1;
  int max_ranks = 65536;
  // As in ProcessGroupOptions.
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};
  std::chrono::milliseconds init_timeout{std::chrono::minutes(5)};
  std::chrono::milliseconds peer_timeout{std::chrono::seconds(10)};
  // How long a recovery waits for a member that does not answer, and for one that is alive but busy.
  std::chrono::milliseconds silent_timeout{std::chrono::seconds(5)};
  std::chrono::milliseconds straggler_timeout{std::chrono::minutes(1)};
  // How long to wait with fewer than min_ranks, or without a quorum (another part of the job might continue); then the
  // job ends.
  std::chrono::milliseconds quorum_timeout{std::chrono::minutes(5)};
  // Called before run() throws because the job cannot continue. The place to save a snapshot of this process alone.
  std::function<void(const std::string& reason)> on_give_up = {};
};

// One generation: the ranks that train together until the next change. For the thread that trains only.
class Context {
 public:
  int rank() const;
  int world_size() const;
  std::int64_t generation() const;
  // Also the default group while the function runs.
  const std::shared_ptr<ProcessGroup>& group() const;
  std::int64_t step() const;
  std::int64_t epoch() const;

  // The indices of this rank's next samples; nullopt at the end of the epoch, on all ranks at the same step. All ranks
  // must ask for the same size. Each gets that many, in the epoch's last step more or fewer. The batch is empty only if
  // a generation has fewer samples left than ranks. Needs State::sampler.
  std::optional<std::vector<std::size_t>> next_batch(std::size_t batch_size);

  // Makes the step of the optimizer; use it instead of optimizer.step(). When it has returned, the step counts on this
  // rank, which had the gradients of all, also if a peer is lost before the commit. At most once for each commit. What
  // else changes parameters in a step (several optimizers, clamping, an average of the weights in the model) goes into
  // one function. It must not communicate.
  void step(torch::optim::Optimizer& optimizer);
  void step(const std::function<void()>& update);
  // First sets the learning rates for this step. A newcomer has the step of the others, hence also their rates.
  void step(torch::optim::Optimizer& optimizer, LearningRate& rate);

  // Call it after each step: from then on the step counts, and the samples that next_batch returned
  // since the last commit are used. Adds 1 to state.step. Collective. If the ranks change, it does not return but
  // throws an exception, which run() catches to call the function again: do not catch it.
  void commit();
  // Ends the epoch: adds 1 to state.epoch, and the sampler begins the next one. Not collective.
  void next_epoch();

  class Generation;
  explicit Context(Generation& generation) : generation_(generation) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

 private:
  Generation& generation_;
};

// How run() ended.
enum class Outcome : std::uint8_t {
  trained,             // the function returned, on all ranks
  finished_elsewhere,  // the job ended before this process could join
};

// Runs `train` until it returns, in as many generations as it takes. The environment describes the job, as for
// init_process_group(); there must be no default group. Passes on what `train` throws, unless a peer was lost. Throws
// Error with `unavailable` and the reason if the job cannot continue.
Outcome run(State& state, const std::function<void(Context&)>& train, const Options& options = {});

// xxh3 of all parameters, in order: equal on all ranks after each commit.
std::uint64_t hash_of_parameters(const ModelView& model);

}  // namespace lockstep::elastic
