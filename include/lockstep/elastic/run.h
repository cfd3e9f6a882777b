// Elastic training: when a process is lost the others go on, in the same processes, from the last committed step; and
// a newcomer is let in while the training runs.
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
//         optimizer.step();
//         context.commit();
//       }
//       context.next_epoch();
//     }
//   });
//
// Start it with `lockstep run --elastic --nproc-per-node 4 ./train`, which also starts replacements.
//
// What happens when a peer is lost: whatever call was waiting for it throws, the function is left, the step that was
// not finished is dropped (its samples are dealt out anew), the survivors agree who they are, take the state of the
// most advanced one where they differ, and the function is called again with the new ranks. So everything that depends
// on the group is made inside the function, and everything that is to last outside of it, in the State.
// docs/failure_model.md says what is lost in which case.
//
// Each sample of an epoch is used once by committed steps, whoever dies when. For that the last batches of an epoch
// are of unequal size: use DDP with sample_weighted.
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
#include "lockstep/ddp/process_group.h"

namespace lockstep::elastic {

using checkpoint::State;

struct Options {
  // Below min_ranks the survivors wait for newcomers; LOCKSTEP_MIN_RANKS and LOCKSTEP_MAX_RANKS (from the launcher)
  // win.
  int min_ranks = 1;
  int max_ranks = 65536;
  // As in ProcessGroupOptions.
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};
  std::chrono::milliseconds init_timeout{std::chrono::minutes(5)};
  std::chrono::milliseconds peer_timeout{std::chrono::seconds(10)};
  // During a recovery: how long a process that does not answer is waited for, and one that lives but does not come.
  std::chrono::milliseconds silent_timeout{std::chrono::seconds(5)};
  std::chrono::milliseconds straggler_timeout{std::chrono::minutes(1)};
  // How long to wait with fewer than min_ranks, or with too few to be sure that no other part goes on: then the job
  // ends.
  std::chrono::milliseconds quorum_timeout{std::chrono::minutes(5)};
  // Called before run() throws because the job cannot go on: a good moment for a snapshot of this process alone.
  std::function<void(const std::string& reason)> on_give_up = {};
};

// One generation: the ranks that train together until the next change. Used by the thread that trains.
class Context {
 public:
  int rank() const;
  int world_size() const;
  std::int64_t generation() const;
  // Also the default group while the function runs.
  const std::shared_ptr<ProcessGroup>& group() const;
  std::int64_t step() const;
  std::int64_t epoch() const;

  // This rank's part of the next samples; nothing at the end of the epoch, on all ranks at the same time. Every rank
  // asks for the same size, and gets that many; in the epoch's last step more or fewer. Empty only where fewer samples
  // than ranks are left for a generation. Needs State::sampler.
  std::optional<std::vector<std::size_t>> next_batch(std::size_t batch_size);

  // After each step of the optimizer: from now on the step counts, and what next_batch gave since the last commit is
  // used up. Adds 1 to state.step. Collective. Where the ranks change, does not return: the function is left by an
  // exception, and called again. Let it pass.
  void commit();
  // The epoch is over: adds 1 to state.epoch, and the sampler begins the next one. Not collective.
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
  trained,             // the function returned, with all ranks
  finished_elsewhere,  // this process asked to be let in, and the job ended before
};

// Runs `train` until it returns, in as many generations as it takes. The job is that of the environment, as for
// init_process_group(); there must be no default group. Throws Error: what `train` throws unless a peer was lost, and
// `unavailable` when the job cannot go on, with the reason.
Outcome run(State& state, const std::function<void(Context&)>& train, const Options& options = {});

// xxh3 of all parameters, in order: equal on all ranks after each commit.
std::uint64_t hash_of_parameters(const torch::nn::Module& model);

}  // namespace lockstep::elastic
