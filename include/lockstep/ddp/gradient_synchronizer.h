// GradientSynchronizer: DDP without a module. Keeps the parameters and buffers of all replicas equal.
//
// DistributedDataParallel wraps it around a module's forward(). Use it directly for hand-written training loops:
//
//   lockstep::GradientSynchronizer sync(*model);
//   sync.before_forward(batch.size(0));
//   auto output = model->encode(batch);
//   sync.after_forward({output});
//   loss(output).backward();        // gradients are averaged as they become ready
//
// Collective are the constructor, before_forward() (if it broadcasts buffers), backward(), join(), sync_buffers(),
// verify_in_sync(), and registered hooks. Outside of no_sync(), a backward without a forward between before_forward()
// and after_forward() is an error. One thread trains; autograd's threads may call the synchronizer concurrently with
// it.
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/ddp/comm_hook.h"
#include "lockstep/ddp/ddp_options.h"
#include "lockstep/ddp/model_view.h"
#include "lockstep/record/straggler.h"

namespace torch::optim {
class Optimizer;
}

namespace lockstep {

struct JoinOptions {
  // Divide by the number of all ranks, so that late steps have less weight (PyTorch's default); false: by
  // the number of ranks that still have data. Sample-weighted averaging needs neither.
  bool divide_by_initial_world_size = true;
  // join() throws Error (StatusCode::closed) on all ranks as soon as one rank has no more data, instead of letting the
  // others continue; the group remains usable. For models that communicate in forward, such as SyncBatchNorm.
  bool throw_on_early_termination = false;
  // Optimizers with a state (momentum, Adam) that train the model after join(), too: a rank that leaves its loop early
  // makes fewer steps, so at the end all ranks take the state of one that made all steps. If one is forgotten, the
  // replicas differ after the next steps; forward() then throws. Learning rates are the program's: count steps for a
  // schedule in a way that is the same on all ranks.
  std::vector<std::reference_wrapper<torch::optim::Optimizer>> optimizers = {};
};

class GradientSynchronizer {
 public:
  // Throws Error if the ranks' models differ (naming the parameter and both sides) or no parameter
  // needs a gradient.
  explicit GradientSynchronizer(const ModelView& model, const DdpOptions& options = {});
  explicit GradientSynchronizer(NamedTensors parameters, NamedTensors buffers = {}, const DdpOptions& options = {});
  ~GradientSynchronizer();
  GradientSynchronizer(const GradientSynchronizer&) = delete;
  GradientSynchronizer& operator=(const GradientSynchronizer&) = delete;

  // Call these two before and after every forward. `samples`: this rank's number of samples, for sample_weighted (-1:
  // the number passed to set_sample_count). Throws Error if the last backward left parameters without gradients (naming
  // them), or if a parameter has changed its type, shape or device, or was frozen or unfrozen: create a new
  // GradientSynchronizer then. All parameters may be frozen temporarily; such a forward is not synchronised.
  // While gradients are off, only buffers are synchronised, in the first forward after training (sync_buffers).
  void before_forward(std::int64_t samples = -1);
  // `outputs`: every tensor that the loss may depend on. Throws Error if none of them needs a gradient, unless
  // gradients are off or only accumulated.
  void after_forward(const std::vector<at::Tensor>& outputs);
  // Throws Error if the model's parameters and buffers are not the same tensors as at construction, naming the first
  // one that differs. DistributedDataParallel calls it in each forward.
  void check_unchanged(const ModelView& model) const;

  // This rank's number of samples in the next forward (sample_weighted).
  void set_sample_count(std::int64_t samples);

  // While any of them exists, gradients of the forwards made only accumulate, whenever their backward runs (as in
  // PyTorch); so do those of a backward without a forward. The backward of the next forward outside of it averages
  // everything that was accumulated.
  class NoSync {
   public:
    explicit NoSync(GradientSynchronizer& synchronizer);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    GradientSynchronizer& synchronizer_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  // Runs `train_loop`, in which ranks may take different numbers of steps: a rank whose loop has
  // ended takes part in its peers' collectives, with gradients of zero, until all loops have ended.
  // Then parameters and buffers are taken from a rank that made all steps. Every rank calls it. Each step has one
  // forward for each backward: two are an error once a loop has ended.
  void join(const std::function<void()>& train_loop, const JoinOptions& options = {});

  // Takes the buffers from rank 0 now. Call it on all ranks before evaluating on some of them only. Collective.
  void sync_buffers();

  // Throws Error naming the first parameter or buffer that is not bit-identical on all ranks, and
  // the ranks. With broadcast_buffers, buffers are first taken from rank 0, as the next forward would
  // do; without, each rank has its own, and only parameters are compared. Collective.
  void verify_in_sync();

  // Replaces the all-reduce of buckets. Call it at most once, before the first backward.
  void register_comm_hook(std::shared_ptr<CommHook> hook);

  // Which rank the others waited for in the latest steps, in which phase, and what it costs. Collective; the same
  // report on all ranks. DdpOptions::straggler_report_every has it logged.
  StragglerReport stragglers();

  const DdpLoggingData& logging_data() const;
  const std::shared_ptr<ProcessGroup>& process_group() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
