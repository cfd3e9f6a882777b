// Snapshots: training that was stopped or has died resumes as if it had never been interrupted.
//
//   lockstep::checkpoint::Snapshots snapshots("run/snapshots", {.keep_last = 3, .asynchronous = true});
//   lockstep::checkpoint::State state{.model = *model, .optimizer = optimizer};
//   if (snapshots.load(state)) sampler.load_state(*state.sampler);     // false: no snapshot yet, a new run
//   for (...) {
//     ... one step ...
//     state.step++;
//     state.sampler = sampler.state();
//     if (state.step % 500 == 0) snapshots.save(state);
//   }
//   snapshots.wait();
//
// A run that is resumed from a snapshot gives the same bits as one that was never stopped: parameters, buffers, the
// optimizer's state and options, the sampler's position, and the random number generators of all ranks are saved. Each
// snapshot is a folder: model.safetensors (which Python's safetensors reads), optimizer.safetensors, rng.safetensors,
// values.safetensors, and snapshot.json with everything else and the hashes of all files. Loading executes nothing of
// what is in them. docs/snapshots.md has the details.
//
// A crash, a full disk or a kill at any point never destroys an existing snapshot.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/base/status.h"
#include "lockstep/checkpoint/skipped_snapshot.h"
#include "lockstep/ddp/distributed_sampler.h"
#include "lockstep/ddp/model_view.h"
#include "lockstep/ddp/process_group.h"

namespace lockstep::checkpoint {

// A value of the program's own. A string may hold any bytes.
using Value = std::variant<std::int64_t, double, std::string, at::Tensor>;

// What is saved and loaded. The program owns the model and the optimizer; they must outlive the State.
struct State {
  // The module that was passed to DistributedDataParallel, not the wrapper: a torch::nn::Module or torch::jit::Module.
  ModelView model;
  // SGD, Adam, AdamW, Adagrad, RMSprop or LBFGS of LibTorch, a class derived from one of these that keeps no other
  // options and state, or a ZeroRedundancyOptimizer. nullopt: the program has no optimizer.
  std::optional<std::reference_wrapper<torch::optim::Optimizer>> optimizer = std::nullopt;
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  std::optional<DistributedSamplerState> sampler = std::nullopt;
  std::map<std::string, Value> values = {};
  // Include the state of the default CPU random number generator of every rank.
  bool rng = true;
};

struct SnapshotOptions {
  // How many of the newest snapshots to keep; damaged ones do not count. At least 1.
  int keep_last = 3;
  // save() returns as soon as the state is copied, and a thread writes it.
  bool asynchronous = false;
  // The ranks that save and load together. Null: the default group, if there is one.
  std::shared_ptr<ProcessGroup> group = nullptr;
  // This process by itself, even if there is a default group: no other rank takes part in the calls.
  bool alone = false;
  // How long to wait for another process that is writing to the same folder.
  std::chrono::milliseconds lock_timeout{30'000};
};

// The snapshot that was loaded.
struct Loaded {
  std::string path;
  std::string created;  // "2026-11-16T01:33:00Z"
  int world_size = 1;   // of the job that wrote it
  // Newer snapshots that could not be used; each was also logged as a warning.
  std::vector<SkippedSnapshot> skipped_snapshots;
};

// A folder of snapshots of one run. Rank 0 reads and writes it; the other ranks need no access to its disk.
//
// Calls are collective: all ranks of the group make the same calls in the same order, while no other operation of the
// group runs. An error on one rank is thrown on all ranks, as Error. Not thread-safe.
class Snapshots {
 public:
  // Does not access the disk: save() creates the folder. Throws Error if keep_last is less than 1.
  explicit Snapshots(std::string folder, const SnapshotOptions& options = {});
  // Waits for the writer thread; logs its error if no call has thrown it. Not collective.
  ~Snapshots();
  Snapshots(const Snapshots&) = delete;
  Snapshots& operator=(const Snapshots&) = delete;

  // Writes rank 0's state. On return the snapshot is on the disk and verified by reading it back, and snapshots beyond
  // keep_last are deleted. Asynchronous: on return the state is copied and may change. Only one snapshot is written at
  // a time, so the next save() waits for it; if it failed, that save() throws its error and saves nothing, and the one
  // after tries again. Errors: disk full, no permission, another process is writing, a newer generation of the same
  // elastic job has written (this process is no longer part of the job), a tensor that files cannot hold, ...; older
  // snapshots are then untouched.
  void save(const State& state);
  // Waits until no snapshot is being written; throws the writer thread's error.
  void wait();

  // Loads the newest valid snapshot into `state` and the objects that it refers to; returns nullopt if the folder has
  // no snapshot. Rank 0 sends the content to the other ranks. All or nothing: if the snapshot is of a different model
  // (the error names each parameter that differs, and how) or a different optimizer, or if no snapshot is valid, it
  // throws and nothing has changed on any rank. The number of ranks may differ from the run that saved; ranks without
  // a saved random number generator keep theirs. Replaces state.values and state.sampler.
  std::optional<Loaded> load(State& state);
  // The same with the folder of one snapshot, e.g. to return to an earlier one. The next save() counts as newer.
  Loaded load_from(const std::string& path, State& state);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Loads `model` from a file that torch::save(model, path) wrote, in any program, or torch.jit.save in Python. LibTorch
// reads the file, and may execute code that it contains: use it only for files that you trust, or convert them to
// safetensors. Nothing else in Lockstep reads such files: for safetensors and state_dicts from Python, use
// load_weights() (lockstep/ddp/weights.h). Not collective. All or nothing; throws Error, which names the parameters
// that are missing, superfluous, or of a different shape or type.
void import_torch_archive(const std::string& path, const ModelView& model);

}  // namespace lockstep::checkpoint
