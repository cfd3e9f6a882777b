// Snapshots: training that is stopped, or dies, and goes on as if it had not.
//
//   lockstep::checkpoint::Snapshots snapshots("run/snapshots", {.keep_last = 3, .asynchronous = true});
//   lockstep::checkpoint::State state{.model = *model, .optimizer = optimizer};
//   if (snapshots.load(state)) sampler.load_state(*state.sampler);     // nothing there yet: a new run
//   for (...) {
//     ... one step ...
//     state.step++;
//     state.sampler = sampler.state();
//     if (state.step % 500 == 0) snapshots.save(state);
//   }
//   snapshots.wait();
//
// A run that is resumed from a snapshot gives the same bits as one that was never stopped: parameters, buffers, the
// optimizer's state and options, the sampler's position, and the random numbers of every rank are saved. Each snapshot
// is a folder: model.safetensors (which Python's safetensors reads), optimizer.pt (a torch archive), rng.safetensors,
// values.safetensors and snapshot.json with the rest and the hashes of all. docs/snapshots.md has the details.
//
// A crash, a full disk or a kill at any point never costs a snapshot that was there before.
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
#include "lockstep/ddp/process_group.h"

namespace lockstep::checkpoint {

// A value of the program's own. Text may hold any bytes.
using Value = std::variant<std::int64_t, double, std::string, at::Tensor>;

// What is saved and loaded. Model and optimizer are the program's and must live while the State is used.
struct State {
  // As given to DistributedDataParallel, not the wrapper around it.
  torch::nn::Module& model;
  // Any of LibTorch's, or a ZeroRedundancyOptimizer of these. None: the program has no optimizer.
  std::optional<std::reference_wrapper<torch::optim::Optimizer>> optimizer = std::nullopt;
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  std::optional<DistributedSamplerState> sampler = std::nullopt;
  std::map<std::string, Value> values = {};
  // The default CPU generator's state, of every rank.
  bool rng = true;
};

struct SnapshotOptions {
  // How many snapshots stay, the newest ones; damaged ones do not count. At least 1.
  int keep_last = 3;
  // save() returns once the state is copied, and a thread writes it.
  bool asynchronous = false;
  // The ranks that save and load together. Null: the default group, if there is one.
  std::shared_ptr<ProcessGroup> group = nullptr;
  // This process by itself, whatever groups there are: no other rank takes part in the calls.
  bool alone = false;
  // How long another process that writes to the same folder is waited for.
  std::chrono::milliseconds lock_timeout{30'000};
};

// What load() took.
struct Loaded {
  std::string path;
  std::string created;  // "2026-11-16T01:33:00Z"
  int world_size = 1;   // that wrote it
  // Newer ones that could not be used; each was also logged as a warning.
  std::vector<SkippedSnapshot> skipped_snapshots;
};

// A folder of snapshots of one run. Rank 0 reads and writes it; the others need no access to its disk.
//
// Calls are collective: all ranks of the group make the same ones in the same order, while no other operation of the
// group runs, and an error of one rank is thrown on all. Throw Error. From one thread at a time.
class Snapshots {
 public:
  // Touches nothing: save() makes the folder. Throws Error if keep_last is below 1.
  explicit Snapshots(std::string folder, const SnapshotOptions& options = {});
  // Waits for the writer thread; logs an error that nobody asked for. Not collective.
  ~Snapshots();
  Snapshots(const Snapshots&) = delete;
  Snapshots& operator=(const Snapshots&) = delete;

  // Writes rank 0's state. On return the snapshot is on the disk, was read back, and older ones than keep_last are
  // gone. Asynchronous: on return the state is copied and may change; at most one snapshot is being written, so the
  // next save() waits for it. If that one has failed, this call throws its error and saves nothing; the call after it
  // tries again. Errors: disk full, no permission, another process that writes, a tensor that files cannot hold, ...;
  // older snapshots are then untouched.
  void save(const State& state);
  // Waits until nothing is being written; throws what the writer thread met.
  void wait();

  // Loads the newest snapshot that verifies into `state` and what it refers to; nothing if there is none. Rank 0
  // sends to the others. All or nothing: if the snapshot is of another model (the error names each parameter that
  // differs, and how), of another optimizer, or there are snapshots but none verifies, it throws and nothing has
  // changed on any rank. Written by another number of ranks is fine; then ranks that it has no random numbers for
  // keep theirs. state.values and state.sampler are replaced.
  std::optional<Loaded> load(State& state);
  // The same with one snapshot's folder, e.g. to return to an earlier one. The next save() counts as newer.
  Loaded load_from(const std::string& path, State& state);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Fills `model` from a file that torch::save(model, path) wrote, here or in another program, or torch.jit.save in
// Python. Not collective. All or nothing; throws Error, which names the parameters that are missing, too many, or of
// another shape or type.
void import_torch_archive(const std::string& path, torch::nn::Module& model);
// The same from a safetensors file, of whatever program.
void import_safetensors(const std::string& path, torch::nn::Module& model);

}  // namespace lockstep::checkpoint
