// DistributedSampler: each rank's shard of a dataset, in the order of PyTorch's sampler of the same name.
//
//   lockstep::DistributedSampler sampler(dataset.size().value(), {.shuffle = true, .seed = 1});
//   auto loader = torch::data::make_data_loader(std::move(dataset), sampler, 64);
//   for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
//     sampler.set_epoch(epoch);
//     for (auto& batch : *loader) ...
//   }
//
// The epoch's global order is a permutation that depends on seed + epoch only. Rank r gets its positions
// r, r + num_replicas, ... No communication takes place.
#pragma once

#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/checkpoint/distributed_sampler_state.h"

namespace lockstep {

struct DistributedSamplerOptions {
  // Default: the default process group's.
  std::optional<int> num_replicas = std::nullopt;
  std::optional<int> rank = std::nullopt;
  bool shuffle = true;
  std::int64_t seed = 0;
  // Drop the last samples of the order, so that all ranks get equally many, each sample at most once.
  bool drop_last = false;
  // Without drop_last: repeat samples from the beginning of the order until all ranks have equally many.
  // False: each sample exactly once, and some ranks have one fewer; for evaluation.
  bool pad = true;
};

// Copies share their state: a loader takes its sampler by value, and the copy that the program keeps
// still sets the epoch and reads the position. Use one sampler for each loader. Thread-safe.
class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  // Throws Error if rank or num_replicas is out of range, or is not given and there is no default group.
  explicit DistributedSampler(std::size_t dataset_size, const DistributedSamplerOptions& options = {});

  // Sets the order of the next pass over the loader; a pass that has begun is not affected. Without it
  // every pass has the same order.
  void set_epoch(std::int64_t epoch);
  std::int64_t epoch() const;

  // How many samples this rank gets in a whole epoch, and all ranks together (with repetitions).
  std::size_t num_samples() const;
  std::size_t total_size() const;

  // The position within the epoch, if all ranks have taken as many samples as this one. A loader with
  // worker threads fetches ahead; then pass how many samples of this pass this rank has trained on.
  // Without padding take rank 0's state, since other ranks may have one sample fewer.
  DistributedSamplerState state(std::optional<std::size_t> samples_taken = std::nullopt) const;
  // The next pass continues there: the rest of the order is distributed over the present ranks, however
  // many there are, so that the epoch has every sample once. The pass after it is a whole epoch again.
  // Epoch, seed and shuffle are taken from `state`; set_epoch() with the same epoch changes nothing.
  // Throws Error if the dataset has a different size.
  void load_state(const DistributedSamplerState& state);

  // torch::data's interface: loaders call reset() at the beginning of a pass.
  void reset(torch::optional<std::size_t> new_size = torch::nullopt) override;
  torch::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace lockstep
