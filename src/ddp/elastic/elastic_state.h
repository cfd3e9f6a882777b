// The state of an elastic job in one process: what was committed, what was not, and how it gets to a process that does
// not have it. Used by the thread that trains.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/snapshot.h"
#include "lockstep/ddp/process_group.h"

namespace lockstep::detail {

class StateChain;

class ElasticState {
 public:
  // `progress`: how many commits it has; -1: none of its content counts.
  ElasticState(checkpoint::State& state, std::int64_t progress);

  checkpoint::State& state() { return state_; }
  std::int64_t progress() const { return progress_; }

  // Records samples that all ranks together have taken, until the next commit.
  void take_samples(std::int64_t samples) { taken_ += samples; }
  std::int64_t position() const { return state_.sampler->consumed + taken_; }

  // Runs `update`, which makes the optimizer's step. When it has returned, the step counts, also if a peer is lost
  // before the commit: this rank had the gradients of all.
  void make_step(const std::function<void()>& update);
  // Makes the present state the committed one. Throws Error (invalid_argument) if the parameters were changed, but not
  // in make_step().
  void commit_step();
  void commit_epoch();
  // The job continued without this process: none of its content counts any more.
  void forget() { progress_ = -1; }
  // After a failure: completes a step that was made, or goes back to the last commit. If the parameters were changed in
  // another way, the state does not count any more (progress -1). Gradients are dropped.
  void settle();

  // Of all that transfer() would send, but for the buffers. Equal on all ranks that have committed the same steps.
  std::uint64_t hash() const;
  // Buffers may differ between ranks: each forward in training changes the statistics of batch normalisation, and DDP
  // broadcasts them before the next one.
  std::uint64_t hash_of_buffers() const;
  // Collective: all ranks get `source`'s buffers.
  void take_buffers(ProcessGroup& group, int source);

  // The ranks in `receivers` get `source`'s committed state; the others return at once. All ranks give the same
  // arguments; `source` is not among the receivers. A receiver compares what it is sent with its own model and
  // optimizer before it changes anything, and throws Error (mismatch), which names what differs. If this process has a
  // state of its own (progress() >= 0), it keeps that until all has arrived.
  void transfer(ProcessGroup& group, int source, const std::vector<int>& receivers);

 private:
  struct Small {  // all but the tensors of model and optimizer
    std::int64_t step = 0;
    std::int64_t epoch = 0;
    std::optional<DistributedSamplerState> sampler;
    std::map<std::string, checkpoint::Value> values;
  };
  Small small() const;
  void capture();
  bool changed_since(const std::vector<at::Tensor>& probes) const;
  void finish_step();
  std::vector<at::Tensor> probes() const;
  void send(StateChain& chain) const;
  void receive(StateChain& chain, const std::string& where);

  checkpoint::State& state_;
  std::int64_t progress_;
  std::int64_t taken_ = 0;
  Small committed_;
  std::vector<at::Tensor> committed_buffers_;  // copies: a forward changes them before its step is finished
  std::vector<at::Tensor> probes_;             // some elements of each parameter, as committed
  enum class Step : std::uint8_t { none, running, made };
  Step step_ = Step::none;                  // since the last commit
  std::vector<at::Tensor> probes_of_step_;  // when it was made
};

}  // namespace lockstep::detail
