// Everything follows from one rule. Position p of an epoch is sample order[p mod size], and a pass that
// begins at position c gives rank r the positions c + r, c + r + n, ... below an end that depends on
// padding. A fresh epoch begins at 0. A resumed one at the same number of ranks n has the same positions
// as the one that was interrupted, padding included, because c is then a multiple of n.
#include "lockstep/ddp/distributed_sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <mutex>

#include "base/invalid_argument.h"
#include "lockstep/ddp/init.h"

namespace lockstep {

namespace {

// One pass's samples on this rank.
struct Pass {
  std::int64_t epoch = 0;
  std::int64_t begin = 0;  // global position
  std::int64_t end = 0;
  std::int64_t taken = 0;  // by this rank
  at::Tensor order = {};   // undefined: 0, 1, 2, ...
};

}  // namespace

struct DistributedSampler::Shared {
  // Constant after construction.
  int num_replicas = 1;
  int rank = 0;
  bool drop_last = false;
  bool pad = true;

  mutable std::mutex mutex;
  // Guarded by mutex.
  std::int64_t size = 0;
  std::int64_t seed = 0;
  bool shuffle = true;
  std::int64_t epoch = 0;
  std::int64_t resume_at = 0;  // where the next pass begins
  bool running = false;        // next() was called since the last reset()
  Pass pass;

  std::int64_t end_of_pass(std::int64_t begin) const {
    const std::int64_t left = size - begin;
    if (drop_last) return begin + left / num_replicas * num_replicas;
    if (pad) return begin + (left + num_replicas - 1) / num_replicas * num_replicas;
    return size;
  }

  std::int64_t samples_of_rank(std::int64_t begin, std::int64_t end) const {
    return std::max<std::int64_t>(0, (end - begin - rank + num_replicas - 1) / num_replicas);
  }

  void start_pass() {
    running = true;
    pass = {.epoch = epoch, .begin = resume_at, .end = end_of_pass(resume_at)};
    if (shuffle && pass.end > pass.begin) {
      at::Generator generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(seed + epoch));
      pass.order = at::randperm(size, generator, at::TensorOptions().dtype(at::kLong));
    }
  }

  std::size_t sample_at(std::int64_t position) const {
    const std::int64_t index = position % size;
    return static_cast<std::size_t>(pass.order.defined() ? pass.order.data_ptr<std::int64_t>()[index] : index);
  }
};

DistributedSampler::DistributedSampler(std::size_t dataset_size, const DistributedSamplerOptions& options)
    : shared_(std::make_shared<Shared>()) {
  shared_->num_replicas = options.num_replicas ? *options.num_replicas : get_world_size();
  shared_->rank = options.rank ? *options.rank : get_rank();
  if (shared_->num_replicas < 1)
    throw_invalid_argument("DistributedSampler",
                           fmt::format("num_replicas is {}, but must be at least 1", shared_->num_replicas));
  if (shared_->rank < 0 || shared_->rank >= shared_->num_replicas) {
    throw_invalid_argument("DistributedSampler",
                           fmt::format("rank is {}, but with num_replicas {} it must be from 0 to {}", shared_->rank,
                                       shared_->num_replicas, shared_->num_replicas - 1));
  }
  shared_->drop_last = options.drop_last;
  shared_->pad = options.pad;
  shared_->size = static_cast<std::int64_t>(dataset_size);
  shared_->seed = options.seed;
  shared_->shuffle = options.shuffle;
}

void DistributedSampler::set_epoch(std::int64_t epoch) {
  std::lock_guard lock(shared_->mutex);
  if (epoch == shared_->epoch) return;
  shared_->epoch = epoch;
  shared_->resume_at = 0;
}

std::int64_t DistributedSampler::epoch() const {
  std::lock_guard lock(shared_->mutex);
  return shared_->epoch;
}

std::size_t DistributedSampler::num_samples() const {
  std::lock_guard lock(shared_->mutex);
  return static_cast<std::size_t>(shared_->samples_of_rank(0, shared_->end_of_pass(0)));
}

std::size_t DistributedSampler::total_size() const {
  std::lock_guard lock(shared_->mutex);
  return static_cast<std::size_t>(shared_->end_of_pass(0));
}

DistributedSamplerState DistributedSampler::state(std::optional<std::size_t> samples_taken) const {
  std::lock_guard lock(shared_->mutex);
  DistributedSamplerState state{.epoch = shared_->epoch,
                                .seed = shared_->seed,
                                .dataset_size = shared_->size,
                                .consumed = shared_->resume_at,
                                .shuffle = shared_->shuffle};
  const Pass& pass = shared_->pass;
  if (!shared_->running || pass.epoch != shared_->epoch) return state;
  const auto taken = samples_taken ? static_cast<std::int64_t>(*samples_taken) : pass.taken;
  if (taken > pass.taken) {
    throw_invalid_argument(
        "DistributedSampler",
        fmt::format("state({}): this rank was given only {} samples in this pass", taken, pass.taken));
  }
  state.consumed = std::min({pass.begin + taken * shared_->num_replicas, pass.end, shared_->size});
  return state;
}

void DistributedSampler::load_state(const DistributedSamplerState& state) {
  std::lock_guard lock(shared_->mutex);
  if (state.dataset_size != shared_->size) {
    throw_invalid_argument(
        "DistributedSampler",
        fmt::format("load_state: the state is of a dataset of {} samples, this one has {}; an epoch can only be "
                    "continued on the same data",
                    state.dataset_size, shared_->size));
  }
  if (state.consumed < 0 || state.consumed > state.dataset_size) {
    throw_invalid_argument("DistributedSampler",
                           fmt::format("load_state: {} of {} samples cannot have been consumed; the state is damaged",
                                       state.consumed, state.dataset_size));
  }
  shared_->epoch = state.epoch;
  shared_->seed = state.seed;
  shared_->shuffle = state.shuffle;
  shared_->resume_at = state.consumed;
  shared_->running = false;
}

void DistributedSampler::reset(torch::optional<std::size_t> new_size) {
  std::lock_guard lock(shared_->mutex);
  if (new_size && static_cast<std::int64_t>(*new_size) != shared_->size) {
    shared_->size = static_cast<std::int64_t>(*new_size);
    shared_->resume_at = 0;
  }
  // A pass from which no sample was taken yet may still be the one that load_state() prepared.
  if (shared_->running) shared_->resume_at = 0;
  shared_->running = false;
}

torch::optional<std::vector<std::size_t>> DistributedSampler::next(std::size_t batch_size) {
  std::lock_guard lock(shared_->mutex);
  if (!shared_->running) shared_->start_pass();
  Pass& pass = shared_->pass;
  const std::int64_t left = shared_->samples_of_rank(pass.begin, pass.end) - pass.taken;
  if (left <= 0) return torch::nullopt;
  std::vector<std::size_t> batch(std::min<std::size_t>(batch_size, static_cast<std::size_t>(left)));
  for (std::size_t& index : batch) {
    index = shared_->sample_at(pass.begin + shared_->rank + pass.taken * shared_->num_replicas);
    pass.taken += 1;
  }
  return batch;
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  const DistributedSamplerState now = state();
  archive.write("epoch", c10::IValue(now.epoch));
  archive.write("seed", c10::IValue(now.seed));
  archive.write("dataset_size", c10::IValue(now.dataset_size));
  archive.write("consumed", c10::IValue(now.consumed));
  archive.write("shuffle", c10::IValue(now.shuffle));
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  const auto read = [&archive](const char* key) {
    c10::IValue value;
    archive.read(key, value);
    return value;
  };
  load_state({.epoch = read("epoch").toInt(),
              .seed = read("seed").toInt(),
              .dataset_size = read("dataset_size").toInt(),
              .consumed = read("consumed").toInt(),
              .shuffle = read("shuffle").toBool()});
}

}  // namespace lockstep
