#include "ddp/model_fuzz/rules.h"

#include <algorithm>

namespace lockstep::fuzz {

namespace {

constexpr std::int64_t kNever = 1000;  // hook_start: later than any step of a case

std::string why_graph_unsupported(const Case& item) {
  const Model& model = item.model;
  const Options& options = item.options;
  const Usage usage = usage_of(model);
  bool trains = false;
  for (std::size_t p = 0; p < model.parameters.size(); ++p) {
    const Parameter& parameter = model.parameters[p];
    if (parameter.ignored && parameter.two_names) return "ignored under one of two names";
    if (parameter.frozen) continue;
    if (usage.accumulated[p] > 1 && !options.static_graph) return "a parameter in several segments needs static_graph";
    if (parameter.ignored) continue;
    trains |= usage.always[p];
    if (!usage.always[p] && !options.find_unused_parameters && !options.static_graph) {
      return "an unused parameter needs find_unused_parameters or static_graph";
    }
  }
  if (!trains) return "no parameter that every rank trains";
  if (contains(model, Op::checkpoint) && options.find_unused_parameters && !options.static_graph) {
    return "the search for unused parameters does not see into segments";
  }
  for (const Node& node : model.nodes) {
    if (node.op == Op::gate && node.numbers[1] != 0 && options.static_graph) return "the graph is not static";
    if (node.op == Op::gate && options.static_graph && item.training.joins()) {
      return "a rank that shadowed the first static pass takes another rank's graph for its own";
    }
  }
  return {};
}

std::string why_join_unsupported(const Case& item) {
  const Training& training = item.training;
  if (!training.joins()) return {};
  if (static_cast<int>(training.join_steps.size()) != training.world) return "join: a number of steps for each rank";
  if (*std::max_element(training.join_steps.begin(), training.join_steps.end()) != training.steps) return "join: steps";
  if (!is_exact(item.options)) return "join is compared with hooks that average exactly";
  if (training.forwards > 1 || training.backward_twice) return "join shadows one backward for each forward";
  if (training.evaluate) return "join: evaluation is a step of its own";
  return {};
}

}  // namespace

bool drifts(const Options& options) {
  return options.hook == Hook::noop || (options.hook == Hook::post_local_sgd && options.hook_start < kNever);
}

bool is_exact(const Options& options) {
  switch (options.hook) {
    case Hook::none:
    case Hook::all_reduce: return true;
    case Hook::power_sgd:
    case Hook::post_local_sgd: return options.hook_start >= kNever;
    default: return false;
  }
}

std::string why_unsupported(const Case& item) {
  const Training& training = item.training;
  const Options& options = item.options;
  if (training.world < 1 || training.steps < 1 || training.batches.empty() || item.model.outputs.empty())
    return "empty";
  if (const std::string why = why_graph_unsupported(item); !why.empty()) return why;
  if (const std::string why = why_join_unsupported(item); !why.empty()) return why;
  const int smallest = *std::min_element(training.batches.begin(), training.batches.end());
  if (smallest == 0 && (contains(item.model, Op::conv1d) || contains(item.model, Op::conv2d))) {
    return "LibTorch has no backward for convolutions of an empty batch with every weight";
  }
  if (training.forwards > 1 && contains(item.model, Op::checkpoint) && !options.static_graph) {
    return "a segment that runs twice in one backward needs static_graph";
  }
  if (contains(item.model, Op::batch_norm) && smallest < 2) return "batch norm needs two samples";
  if (training.mean_loss && smallest == 0 && !options.sample_weighted) return "the mean of an empty batch";
  if (drifts(options) && options.verify_every > 0) return "verify_every with replicas that drift apart";
  return {};
}

bool equals_whole_batch(const Case& item) {
  const Model& model = item.model;
  for (const Op op : {Op::batch_norm, Op::relu, Op::relu_, Op::data, Op::gate}) {
    if (contains(model, op)) return false;
  }
  for (const Parameter& parameter : model.parameters) {
    if (parameter.ignored && !parameter.frozen) return false;
  }
  // Where a sum of many terms saturates, its rounding decides the gradient.
  const bool saturates = contains(model, Op::tanh) || contains(model, Op::sigmoid);
  for (const Node& node : model.nodes) {
    if (saturates && node.type != Type::f64 && !node.shape.empty() && node.shape.back() >= 8192) return false;
  }
  const Training& training = item.training;
  if (training.joins() || training.forwards > 1 || training.backward_twice || training.micro_batches > 1) return false;
  if (training.zero == Zero::none || training.zero == Zero::in_own_memory) return false;
  return is_exact(item.options) && (item.options.sample_weighted || training.equal_batches());
}

}  // namespace lockstep::fuzz
