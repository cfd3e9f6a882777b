#include "ddp/model_fuzz/generate.h"

#include <algorithm>

#include "ddp/model_fuzz/rules.h"

namespace lockstep::fuzz {

namespace {

// Bucket limits at, just below and just above what the model has, besides the defaults and very small ones.
std::int64_t bucket_bytes(Random& random, const Model& model, std::int64_t standard) {
  if (random.chance(50)) return standard;
  if (random.chance(30)) return random.pick<std::int64_t>({1, 16, 100, 1000});
  std::int64_t bytes = 0;
  const int count = random.between(1, static_cast<int>(model.parameters.size()));
  for (int i = 0; i < count; ++i)
    bytes += model.parameters[model.parameters.size() - 1 - static_cast<std::size_t>(i)].bytes();
  return std::max<std::int64_t>(1, bytes + random.pick<std::int64_t>({-1, 0, 1}));
}

Options generate_options(Random& random, const Model& model) {
  Options options;
  options.bucket_cap_bytes = bucket_bytes(random, model, options.bucket_cap_bytes);
  options.first_bucket_bytes = bucket_bytes(random, model, options.first_bucket_bytes);
  options.broadcast_buffers = !random.chance(15);
  options.init_sync = !random.chance(10);
  options.gradient_as_bucket_view = random.chance(25);
  options.find_unused_parameters = random.chance(15);
  options.static_graph = random.chance(20);
  options.sample_weighted = random.chance(25);
  options.verify_every = random.chance(15) ? random.between(1, 2) : 0;
  if (random.chance(45)) {
    options.hook = static_cast<Hook>(random.between(1, 7));
    if (options.hook == Hook::power_sgd || options.hook == Hook::post_local_sgd) {
      options.hook_start = random.pick<std::int64_t>({0, 1, 2, 1000});
    }
  }
  return options;
}

Training generate_training(Random& random, const Model& model, bool large) {
  Training training;
  training.world = random.pick({1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 4, 5});
  if (large) training.world = std::min(training.world, 3);
  training.steps = large ? random.between(1, 2) : random.between(1, 4);
  training.micro_batches = random.chance(20) ? random.between(2, 3) : 1;
  training.forwards = random.chance(8) ? 2 : 1;
  training.backward_twice = random.chance(8);
  training.zero = random.pick(
      {Zero::to_undefined, Zero::to_undefined, Zero::to_undefined, Zero::in_place, Zero::in_own_memory, Zero::none});
  training.keep_gradients = random.chance(20);
  training.evaluate = random.chance(15);
  training.momentum = random.chance(30);
  const bool needs_two = contains(model, Op::batch_norm);
  const bool convolves = contains(model, Op::conv1d) || contains(model, Op::conv2d);
  const int smallest = needs_two ? 2 : random.chance(20) && !convolves ? 0 : 1;
  const int largest = needs_two ? 4 : random.pick({1, 1, 2, 4});
  if (random.chance(60)) {
    training.batches = {std::max({1, smallest, random.between(smallest, std::max(smallest, largest))})};
  } else {
    const int count = training.world * training.micro_batches + random.below(3);
    for (int i = 0; i < count; ++i) training.batches.push_back(random.between(smallest, std::max(smallest, largest)));
  }
  if (training.world > 1 && random.chance(12)) {
    for (int rank = 0; rank < training.world; ++rank) training.join_steps.push_back(random.between(0, training.steps));
    training.join_steps[static_cast<std::size_t>(random.below(training.world))] = training.steps;
    training.divide_by_world = random.chance(60);
  }
  return training;
}

// Switches options on that the model needs, and what does not go together off.
void make_supported(Random& random, Case& item) {
  Model& model = item.model;
  Options& options = item.options;
  Training& training = item.training;
  const Usage usage = usage_of(model);
  bool several_segments = false, unused = false, varies = false;
  for (std::size_t p = 0; p < model.parameters.size(); ++p) {
    if (model.parameters[p].frozen) continue;
    several_segments |= usage.accumulated[p] > 1;
    unused |= !usage.always[p] && !model.parameters[p].ignored;
  }
  const bool checkpointed = contains(model, Op::checkpoint);
  if (several_segments || (checkpointed && (unused || options.find_unused_parameters || training.forwards > 1)))
    options.static_graph = true;
  for (Node& node : model.nodes) {
    if (node.op == Op::gate && options.static_graph && several_segments | checkpointed) node.numbers[1] = 0;
    varies |= node.op == Op::gate && node.numbers[1] != 0;
  }
  if (varies) options.static_graph = false;
  if (unused && !options.static_graph && !options.find_unused_parameters) {
    (varies || random.chance(50) ? options.find_unused_parameters : options.static_graph) = true;
  }
  if (options.sample_weighted) {
    training.mean_loss = random.chance(50);
  }
  if (drifts(options)) options.verify_every = 0;
  if (training.joins()) {
    training.forwards = 1;
    training.backward_twice = training.evaluate = false;
    if (!is_exact(options)) {
      options.hook = random.chance(50) ? Hook::none : Hook::all_reduce;
      options.hook_start = Options().hook_start;
    }
  }
}

}  // namespace

Case generate(std::uint64_t seed) {
  Random random(seed);
  for (;;) {  // almost always the first one
    Case item;
    item.seed = seed;
    const bool large = random.chance(30);
    item.model = generate_model(random, large);
    if (random.chance(8)) {
      Parameter& parameter =
          item.model.parameters[static_cast<std::size_t>(random.below(static_cast<int>(item.model.parameters.size())))];
      parameter.ignored = !parameter.two_names;
    }
    item.options = generate_options(random, item.model);
    item.training = generate_training(random, item.model, large);
    make_supported(random, item);
    if (why_unsupported(item).empty()) return item;
  }
}

}  // namespace lockstep::fuzz
