// The step between a program's State and the files of a snapshot.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/snapshot_directory.h"
#include "checkpoint/snapshot_writer.h"
#include "ddp/snapshot/optimizer_copy.h"
#include "ddp/snapshot/tensors.h"
#include "lockstep/checkpoint/snapshot.h"

namespace lockstep::checkpoint {

// A state, ready to be written.
struct Content {
  Manifest manifest;
  TensorFile model;
  std::optional<OptimizerCopy> optimizer_copy;  // or at once:
  std::optional<std::string> optimizer;
  std::optional<TensorFile> values;
  std::optional<TensorFile> rng;

  // Turns the optimizer's copy, if there is one, into bytes: on the thread that writes. Throws Error.
  void finish();
  // Pointing into this object; after finish().
  std::vector<OutputFile> files() const;
};
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
  void load_optimizer_and_rng(State& state) const;
  // The rest, which cannot fail.
  void load_rest(State& state) const;

 private:
  void check_optimizer(const State& state) const;

  const Snapshot& snapshot_;
  NamedTensors model_;  // the program's
  NamedTensors saved_;  // over the snapshot's bytes
  std::map<std::string, Value> values_;
  std::optional<std::string> rng_;
};

}  // namespace lockstep::checkpoint
