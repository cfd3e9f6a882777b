#include "ddp/model_fuzz/case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace lockstep::fuzz {

std::int64_t bytes_of(Type type) { return type == Type::f64 ? 8 : type == Type::f32 ? 4 : 2; }

std::int64_t Parameter::bytes() const {
  std::int64_t count = 1;
  for (std::int64_t size : shape) count *= size;
  return count * bytes_of(type);
}

bool Training::equal_batches() const {
  return std::all_of(batches.begin(), batches.end(), [&](int size) { return size == batches[0] && size > 0; });
}

bool contains(const Model& model, Op op) {
  return std::any_of(model.nodes.begin(), model.nodes.end(), [op](const Node& node) { return node.op == op; });
}

namespace {

// Nodes that the outputs depend on. `through_gates`: also on what is behind a gate.
std::vector<bool> live_nodes(const Model& model, bool through_gates) {
  std::vector<bool> live(model.nodes.size(), false);
  for (const Output& output : model.outputs) live[static_cast<std::size_t>(output.node)] = true;
  for (std::size_t i = model.nodes.size(); i-- > 0;) {
    const Node& node = model.nodes[i];
    // What changes a live tensor in place is live.
    const bool in_place = node.op == Op::add_ || node.op == Op::narrow_add_ || node.op == Op::relu_;
    if (in_place && live[static_cast<std::size_t>(node.in[0])]) live[i] = true;
    if (!live[i]) continue;
    for (std::size_t k = 0; k < node.in.size(); ++k) {
      if (node.op == Op::gate && k == 1 && !through_gates) continue;
      live[static_cast<std::size_t>(node.in[k])] = true;
    }
  }
  return live;
}

}  // namespace

Usage usage_of(const Model& model) {
  const std::vector<bool> always = live_nodes(model, false), reachable = live_nodes(model, true);
  Usage usage;
  usage.always.resize(model.parameters.size());
  usage.sometimes.resize(model.parameters.size());
  usage.accumulated.resize(model.parameters.size());
  std::vector<std::vector<int>> segments(model.parameters.size());
  for (std::size_t i = 0; i < model.nodes.size(); ++i) {
    const Node& node = model.nodes[i];
    if (node.op != Op::parameter || !reachable[i]) continue;
    const auto p = static_cast<std::size_t>(node.numbers[0]);
    (always[i] ? usage.always : usage.sometimes)[p] = true;
    if (std::find(segments[p].begin(), segments[p].end(), node.segment) == segments[p].end()) {
      segments[p].push_back(node.segment);
      ++usage.accumulated[p];
    }
  }
  return usage;
}

void remove_dead_nodes(Model& model) {
  const std::vector<bool> live = live_nodes(model, true);
  std::vector<int> place(model.nodes.size(), -1);
  std::vector<Node> nodes;
  std::vector<bool> used_inputs(model.inputs.size(), false);
  used_inputs[0] = true;
  for (std::size_t i = 0; i < model.nodes.size(); ++i) {
    if (!live[i]) continue;
    place[i] = static_cast<int>(nodes.size());
    nodes.push_back(model.nodes[i]);
    for (int& in : nodes.back().in) in = place[static_cast<std::size_t>(in)];
    if (nodes.back().op == Op::input) used_inputs[static_cast<std::size_t>(nodes.back().numbers[0])] = true;
  }
  for (Output& output : model.outputs) output.node = place[static_cast<std::size_t>(output.node)];
  std::vector<std::int64_t> input_place(model.inputs.size(), 0);
  std::vector<Input> inputs;
  for (std::size_t i = 0; i < model.inputs.size(); ++i) {
    if (!used_inputs[i]) continue;
    input_place[i] = static_cast<std::int64_t>(inputs.size());
    inputs.push_back(model.inputs[i]);
  }
  for (Node& node : nodes) {
    if (node.op == Op::input) node.numbers[0] = input_place[static_cast<std::size_t>(node.numbers[0])];
  }
  model.nodes = std::move(nodes);
  model.inputs = std::move(inputs);
}

const char* name_of(Hook hook) {
  constexpr const char* kNames[] = {"none", "all_reduce", "fp16", "bf16",
                                    "int8", "power_sgd",  "noop", "post_local_sgd"};
  return kNames[static_cast<int>(hook)];
}

const char* name_of(Type type) {
  constexpr const char* kNames[] = {"f32", "f64", "bf16"};
  return kNames[static_cast<int>(type)];
}

const char* name_of(Op op) {
  constexpr const char* kNames[] = {
      "parameter",  "input",      "data",        "hole",   "view",         "unsqueeze", "squeeze", "transpose",
      "narrow",     "slice",      "select",      "expand", "index_select", "cat",       "to_type", "contiguous",
      "add",        "mul",        "scale",       "tanh",   "sigmoid",      "relu",      "mean",    "sum",
      "relu_",      "add_",       "narrow_add_", "linear", "matmul",       "embedding", "conv1d",  "conv2d",
      "layer_norm", "batch_norm", "attention",   "gate",   "checkpoint"};
  return kNames[static_cast<int>(op)];
}

std::string describe(const Case& item) {
  const Training& training = item.training;
  const Options& options = item.options;
  std::string text =
      fmt::format("world {}, steps {}, batches [{}]", training.world, training.steps, fmt::join(training.batches, ","));
  const auto add = [&text](bool present, const std::string& what) {
    if (present) text += ", " + what;
  };
  add(training.micro_batches > 1, fmt::format("{} micro-batches", training.micro_batches));
  add(training.forwards > 1, "two forwards for one backward");
  add(training.backward_twice, "two backwards over one graph");
  add(training.zero == Zero::none, "gradients never zeroed");
  add(training.zero == Zero::in_place, "gradients zeroed in place");
  add(training.zero == Zero::in_own_memory, "gradients in memory of the program");
  add(training.keep_gradients, "gradients kept");
  add(training.evaluate, "evaluation");
  add(training.mean_loss, "mean loss");
  add(training.joins(), fmt::format("join [{}]{}", fmt::join(training.join_steps, ","),
                                    training.divide_by_world ? "" : " divided by active ranks"));
  add(options.bucket_cap_bytes != Options().bucket_cap_bytes,
      fmt::format("bucket_cap {} bytes", options.bucket_cap_bytes));
  add(options.first_bucket_bytes != Options().first_bucket_bytes,
      fmt::format("first_bucket {} bytes", options.first_bucket_bytes));
  add(!options.broadcast_buffers, "no broadcast_buffers");
  add(!options.init_sync, "no init_sync");
  add(options.find_unused_parameters, "find_unused_parameters");
  add(options.static_graph, "static_graph");
  add(options.gradient_as_bucket_view, "gradient_as_bucket_view");
  add(options.sample_weighted, "sample_weighted");
  add(options.verify_every > 0, fmt::format("verify_every {}", options.verify_every));
  add(options.hook != Hook::none, fmt::format("hook {}", name_of(options.hook)));
  add(options.hook_start != Options().hook_start, fmt::format("from step {}", options.hook_start));
  std::int64_t bytes = 0;
  for (const Parameter& parameter : item.model.parameters) bytes += parameter.bytes();
  return text + fmt::format("; {} parameters of {} bytes, {} nodes, {} outputs", item.model.parameters.size(), bytes,
                            item.model.nodes.size(), item.model.outputs.size());
}

}  // namespace lockstep::fuzz
