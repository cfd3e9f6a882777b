// The step between a program's State and the files of a snapshot.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/snapshot_directory.h"
#include "checkpoint/snapshot_writer.h"
#include "ddp/snapshot/optimizer_state.h"
#include "ddp/snapshot/tensors.h"
#include "lockstep/checkpoint/snapshot.h"

namespace lockstep::checkpoint {

// A state, ready to be written.
struct Content {
  Manifest manifest;
  TensorFile model;
  std::optional<TensorFile> optimizer;
  std::optional<TensorFile> values;
  std::optional<TensorFile> rng;

  // Pointing into this object.
  std::vector<OutputFile> files() const;
};
// Throws Error (mismatch) unless `saved` is of the kind and the parameter groups of `optimizer`. `where` is for
// messages.
void check_optimizer(const std::optional<OptimizerRecord>& saved, const torch::optim::Optimizer& optimizer,
                     const std::string& where);

// rng_states: of all ranks, or none. copy: later changes of the state do not matter; memory of `reuse` is used again if
// it fits. Throws Error.
Content collect(const State& state, const std::vector<std::string>& rng_states, int world_size, bool copy,
                Content reuse = {});

// A snapshot that was compared with the program's state and fits it.
class Prepared {
 public:
  // Changes nothing. `snapshot` must outlive this. Throws Error: of another model or optimizer, or incomplete.
  Prepared(const State& state, const Snapshot& snapshot, int rank);
  // The part that LibTorch may still refuse. Throws Error.
  void load_rng() const;
  // The rest, which cannot fail. Once.
  void load_rest(State& state);

 private:
  void prepare_optimizer(torch::optim::Optimizer& optimizer);

  const Snapshot& snapshot_;
  NamedTensors model_;  // the program's
  NamedTensors saved_;  // over the snapshot's bytes
  std::optional<IncomingOptimizer> optimizer_;
  std::map<std::string, Value> values_;
  std::optional<std::string> rng_;
};

}  // namespace lockstep::checkpoint
