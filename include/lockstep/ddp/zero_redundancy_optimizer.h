// ZeRO, stage 1: an optimizer whose state is sharded over the ranks.
//
//   lockstep::ZeroRedundancyOptimizer<torch::optim::AdamW> optimizer(ddp->parameters(), {1e-3});
//
// Each parameter belongs to one rank, which alone holds its optimizer state (Adam's moments, SGD's
// momentum), updates it in step(), and broadcasts the result. This divides the memory for the state by the
// world size, at the cost of sending all parameters once per step. Results are bit-identical to the plain
// optimizer's if all ranks have equal gradients, as after DDP's backward.
//
// It is a torch::optim::Optimizer: zero_grad(), param_groups() (change the learning rate there, in the same
// way on all ranks) and torch's schedulers work as usual. Pass all parameter groups to the constructor.
#pragma once

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/ddp/fused_optimizers.h"
#include "lockstep/ddp/process_group.h"

namespace lockstep {

struct ZeroOptions {
  // Null: the default group.
  std::shared_ptr<ProcessGroup> group = nullptr;
};

namespace detail {

// The owner of each of `sizes`, such that ranks own about equally much: assigns the largest first, each to the
// rank that owns least so far. Depends on its arguments only, so all ranks agree.
std::vector<int> balance_greedily(std::span<const std::int64_t> sizes, int ranks);

// Everything that does not depend on the kind of optimizer.
class ShardedOptimizer : public torch::optim::Optimizer {
 public:
  using ParamGroups = std::vector<torch::optim::OptimizerParamGroup>;
  using Factory = std::function<std::unique_ptr<torch::optim::Optimizer>(ParamGroups)>;

  ShardedOptimizer(ParamGroups groups, std::unique_ptr<torch::optim::OptimizerOptions> defaults, Factory factory,
                   const ZeroOptions& options);

  // Collective. Updates this rank's parameters and receives the others from their owners; blocks until all
  // have arrived. Throws Error.
  torch::Tensor step(LossClosure closure = nullptr) override;

  // Collects the whole state on rank `to`, where save() then writes what the plain optimizer would
  // write. Collective. The next step() or load() drops the collected state.
  void consolidate_state_dict(int to = 0);
  // Only after consolidate_state_dict(to), on rank `to`; throws Error otherwise. A plain optimizer of the
  // same kind and parameter groups can load the archive.
  void save(torch::serialize::OutputArchive& archive) const override;
  // Loads what save() of this class or of a plain optimizer wrote; each rank keeps its shard. Every rank calls
  // it; the world size may differ from that of the job that saved.
  void load(torch::serialize::InputArchive& archive) override;

  // What consolidate_state_dict() collected, as the plain optimizer; throws Error if this rank has none.
  const torch::optim::Optimizer& consolidated() const;
  // A plain optimizer over all parameters, with the present options and without state; and this rank's shard from one
  // that was filled. For snapshots. Not collective.
  std::unique_ptr<torch::optim::Optimizer> make_plain() const;
  void take_from(torch::optim::Optimizer& whole);

  // This rank's shard: the plain optimizer over the parameters that this rank owns.
  const torch::optim::Optimizer& local() const { return *local_; }
  // The owner of the index-th parameter, counted through all groups.
  int owner(std::size_t index) const { return owners_.at(index); }

 private:
  struct Parcel;

  ParamGroups groups_of(int rank) const;
  std::size_t parameter_count() const;
  void check_groups() const;
  std::vector<at::Tensor> all_parameters() const;
  void check_memory() const;
  void check_same_parameters();
  void make_parcels();
  void exchange_parameters();

  const std::shared_ptr<ProcessGroup> group_;
  const Factory factory_;
  std::vector<int> owners_;
  std::unique_ptr<torch::optim::Optimizer> local_;
  std::unique_ptr<torch::optim::Optimizer> consolidated_;
  bool compared_ = false;                         // the parameters of all ranks, before the first step
  std::vector<std::shared_ptr<Parcel>> parcels_;  // the same on all ranks, in the order in which they are sent
};

template <typename Optimizer>
struct OptionsOf;  // not specialised: ZeroRedundancyOptimizer does not support this optimizer
template <>
struct OptionsOf<torch::optim::SGD> {
  using Type = torch::optim::SGDOptions;
};
template <>
struct OptionsOf<torch::optim::Adam> {
  using Type = torch::optim::AdamOptions;
};
template <>
struct OptionsOf<torch::optim::AdamW> {
  using Type = torch::optim::AdamWOptions;
};
template <>
struct OptionsOf<torch::optim::Adagrad> {
  using Type = torch::optim::AdagradOptions;
};
template <>
struct OptionsOf<torch::optim::RMSprop> {
  using Type = torch::optim::RMSpropOptions;
};
template <>
struct OptionsOf<optim::PlainLion> {
  using Type = optim::LionOptions;
};
template <typename Plain>
struct OptionsOf<optim::Fused<Plain>> : OptionsOf<Plain> {};

}  // namespace detail

// `Plain`: torch::optim::SGD, Adam, AdamW, Adagrad or RMSprop, or a fused optimizer (lockstep/ddp/fused_optimizers.h).
template <typename Plain>
class ZeroRedundancyOptimizer : public detail::ShardedOptimizer {
 public:
  using Options = typename detail::OptionsOf<Plain>::Type;

  // Throws Error if a parameter appears twice or there is none. Not collective.
  ZeroRedundancyOptimizer(ParamGroups groups, Options defaults, const ZeroOptions& options = {})
      : ShardedOptimizer(
            std::move(groups), std::make_unique<Options>(defaults),
            [defaults](ParamGroups shard) { return std::make_unique<Plain>(std::move(shard), defaults); }, options) {}
  ZeroRedundancyOptimizer(std::vector<torch::Tensor> parameters, Options defaults, const ZeroOptions& options = {})
      : ZeroRedundancyOptimizer(ParamGroups{torch::optim::OptimizerParamGroup(std::move(parameters))},
                                std::move(defaults), options) {}
};

}  // namespace lockstep
