#include "ddp/model_fuzz/shrink.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "ddp/model_fuzz/generate.h"
#include "ddp/model_fuzz/rules.h"

namespace lockstep::fuzz {

namespace {

using Edit = std::function<void(Case&)>;

bool is_leaf(const Node& node) {
  return node.op == Op::parameter || node.op == Op::input || node.op == Op::data || node.op == Op::hole;
}
bool has_batch(const Node& node) { return !node.shape.empty() && node.shape[0] == kBatch; }

// Whatever took node `from` takes node `to`.
void redirect(Model& model, int from, int to) {
  for (Node& node : model.nodes) std::replace(node.in.begin(), node.in.end(), from, to);
  for (Output& output : model.outputs) {
    if (output.node == from) output.node = to;
  }
}

void make_parameter(Model& model, std::size_t node) {
  model.parameters.push_back({model.nodes[node].shape, model.nodes[node].type});
  model.nodes[node].op = Op::parameter;
  model.nodes[node].in.clear();
  model.nodes[node].numbers = {static_cast<std::int64_t>(model.parameters.size()) - 1};
}

// The segment's nodes run where the checkpoint was.
void inline_segment(Model& model, std::size_t checkpoint) {
  const Node node = model.nodes[checkpoint];
  const int number = model.nodes[static_cast<std::size_t>(node.in[1])].segment;
  for (Node& inner : model.nodes) {
    if (inner.segment == number) inner.segment = -1;
  }
  redirect(model, node.in[1], node.in[0]);
  redirect(model, static_cast<int>(checkpoint), node.in[2]);
}

void replace_size(Model& model, std::int64_t from, std::int64_t to) {
  const auto in = [&](Shape& shape) { std::replace(shape.begin(), shape.end(), from, to); };
  for (Parameter& parameter : model.parameters) in(parameter.shape);
  for (Input& input : model.inputs) {
    in(input.shape);
    if (input.tokens == from) input.tokens = to;
  }
  for (Node& node : model.nodes) {
    in(node.shape);
    if ((node.op == Op::narrow || node.op == Op::narrow_add_) && node.numbers[2] == from) node.numbers[2] = to;
  }
}

void remove_parameter(Model& model, std::size_t p) {
  model.parameters.erase(model.parameters.begin() + static_cast<std::ptrdiff_t>(p));
  for (Node& node : model.nodes) {
    if (node.op == Op::parameter && node.numbers[0] > static_cast<std::int64_t>(p)) --node.numbers[0];
  }
}

std::vector<bool> used_parameters(const Model& model) {
  std::vector<bool> used(model.parameters.size(), false);
  for (const Node& node : model.nodes) {
    if (node.op == Op::parameter) used[static_cast<std::size_t>(node.numbers[0])] = true;
  }
  return used;
}

void add_training_edits(const Case& item, std::vector<Edit>& edits) {
  const int world = item.training.world, steps = item.training.steps;
  for (int smaller = 1; smaller < world; ++smaller) {
    edits.emplace_back([smaller](Case& c) {
      c.training.world = smaller;
      if (c.training.joins()) c.training.join_steps.resize(static_cast<std::size_t>(smaller));
    });
  }
  for (int fewer = 1; fewer < steps; ++fewer) {
    edits.emplace_back([fewer](Case& c) {
      c.training.steps = fewer;
      for (int& limit : c.training.join_steps) limit = std::min(limit, fewer);
    });
  }
  const auto set = [&edits](auto Training::*member, auto value) {
    edits.emplace_back([member, value](Case& c) { c.training.*member = value; });
  };
  set(&Training::join_steps, std::vector<int>());
  set(&Training::micro_batches, 1);
  set(&Training::forwards, 1);
  set(&Training::backward_twice, false);
  set(&Training::zero, Zero::to_undefined);
  set(&Training::keep_gradients, false);
  set(&Training::mean_loss, false);
  set(&Training::evaluate, false);
  set(&Training::momentum, false);
  set(&Training::divide_by_world, true);
  for (const int size : {1, 2}) set(&Training::batches, std::vector<int>{size});
}

void add_option_edits(std::vector<Edit>& edits) {
  const auto set = [&edits](auto Options::*member) {
    edits.emplace_back([member](Case& c) { c.options.*member = Options().*member; });
  };
  set(&Options::hook);
  set(&Options::hook_start);
  set(&Options::bucket_cap_bytes);
  set(&Options::first_bucket_bytes);
  set(&Options::broadcast_buffers);
  set(&Options::init_sync);
  set(&Options::find_unused_parameters);
  set(&Options::static_graph);
  set(&Options::gradient_as_bucket_view);
  set(&Options::sample_weighted);
  set(&Options::verify_every);
}

void add_node_edits(const Case& item, std::vector<Edit>& edits) {
  const std::vector<Node>& nodes = item.model.nodes;
  for (std::size_t i = nodes.size(); i-- > 0;) {
    const Node& node = nodes[i];
    const int here = static_cast<int>(i);
    if (node.op == Op::checkpoint) edits.emplace_back([i](Case& c) { inline_segment(c.model, i); });
    if (is_leaf(node)) continue;
    std::set<int> tried;
    for (std::size_t j = 0; j < i; ++j) {  // an argument, or anything else of the shape
      if (nodes[j].shape != node.shape || nodes[j].type != node.type || nodes[j].segment != node.segment) continue;
      if (tried.size() < 4 || std::count(node.in.begin(), node.in.end(), static_cast<int>(j)) > 0) {
        tried.insert(static_cast<int>(j));
      }
    }
    for (int other : tried) edits.emplace_back([here, other](Case& c) { redirect(c.model, here, other); });
    if (!has_batch(node)) edits.emplace_back([i](Case& c) { make_parameter(c.model, i); });
    if (node.op == Op::linear && node.in.size() > 2) {
      edits.emplace_back([i](Case& c) { c.model.nodes[i].in.pop_back(); });
    }
    if (node.retain) edits.emplace_back([i](Case& c) { c.model.nodes[i].retain = false; });
    if (node.hooked) edits.emplace_back([i](Case& c) { c.model.nodes[i].hooked = false; });
  }
}

void add_parameter_edits(const Case& item, std::vector<Edit>& edits) {
  const std::vector<bool> used = used_parameters(item.model);
  for (std::size_t p = item.model.parameters.size(); p-- > 0;) {
    if (!used[p]) edits.emplace_back([p](Case& c) { remove_parameter(c.model, p); });
    const auto clear = [&](bool Parameter::*flag) {
      if (item.model.parameters[p].*flag)
        edits.emplace_back([p, flag](Case& c) { c.model.parameters[p].*flag = false; });
    };
    clear(&Parameter::frozen);
    clear(&Parameter::ignored);
    clear(&Parameter::two_names);
    clear(&Parameter::hooked);
  }
  for (std::size_t i = 0; i < item.model.inputs.size(); ++i) {
    edits.emplace_back([i](Case& c) { c.model.inputs[i].requires_grad = false; });
  }
}

void add_size_edits(const Case& item, std::vector<Edit>& edits) {
  std::set<std::int64_t> sizes;
  for (const Node& node : item.model.nodes) sizes.insert(node.shape.begin(), node.shape.end());
  for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
    for (const std::int64_t smaller : {std::int64_t{1}, std::int64_t{2}}) {
      if (smaller < *size) {
        edits.emplace_back([from = *size, smaller](Case& c) { replace_size(c.model, from, smaller); });
      }
    }
  }
}

std::vector<Edit> edits_of(const Case& item) {
  std::vector<Edit> edits;
  for (std::size_t i = 0; item.model.outputs.size() > 1 && i < item.model.outputs.size(); ++i) {
    edits.emplace_back(
        [i](Case& c) { c.model.outputs.erase(c.model.outputs.begin() + static_cast<std::ptrdiff_t>(i)); });
  }
  add_training_edits(item, edits);
  add_option_edits(edits);
  add_node_edits(item, edits);
  add_parameter_edits(item, edits);
  add_size_edits(item, edits);
  for (std::size_t i = 0; i < item.model.outputs.size(); ++i) {
    edits.emplace_back([i](Case& c) { c.model.outputs[i].loss = Loss::sum; });
  }
  return edits;
}

}  // namespace

std::int64_t size_of(const Case& item) {
  const Training& training = item.training;
  const Options& options = item.options;
  const Options standard;
  std::int64_t size = 0;
  for (const Node& node : item.model.nodes)
    size += 100 + 10 * static_cast<std::int64_t>(node.in.size()) + node.retain + node.hooked;
  for (const Parameter& parameter : item.model.parameters) {
    size += 50 + parameter.frozen + parameter.ignored + parameter.two_names + parameter.hooked;
    for (std::int64_t d : parameter.shape) size += std::min<std::int64_t>(d, 40);
  }
  for (const Input& input : item.model.inputs) size += 10 + input.requires_grad;
  for (const Output& output : item.model.outputs) size += 100 + (output.loss != Loss::sum);
  size += 60 * contains(item.model, Op::checkpoint);
  size += 20 * (training.world + training.steps + training.micro_batches + training.forwards);
  size += training.backward_twice + (training.zero != Zero::to_undefined) + training.keep_gradients +
          training.mean_loss + training.evaluate + training.momentum + !training.divide_by_world +
          20 * training.joins();
  for (int batch : training.batches) size += 2 + batch;
  for (int steps : training.join_steps) size += steps;
  size += 5 * ((options.hook != Hook::none) + (options.hook_start != standard.hook_start) +
               (options.bucket_cap_bytes != standard.bucket_cap_bytes) +
               (options.first_bucket_bytes != standard.first_bucket_bytes) + !options.broadcast_buffers +
               !options.init_sync + options.find_unused_parameters + options.static_graph +
               options.gradient_as_bucket_view + options.sample_weighted + (options.verify_every > 0));
  return size;
}

int edit_count(const Case& item) { return static_cast<int>(edits_of(item).size()); }

std::optional<Case> apply_edit(const Case& item, int n) {
  const std::vector<Edit> edits = edits_of(item);
  if (n < 0 || n >= static_cast<int>(edits.size())) return std::nullopt;
  Case result = item;
  result.edits.push_back(n);
  const std::vector<bool> before = used_parameters(item.model);
  edits[static_cast<std::size_t>(n)](result);
  remove_dead_nodes(result.model);
  // What the edit left without a use goes too; what was unused before, is so on purpose.
  const std::vector<bool> after = used_parameters(result.model);
  if (after.size() >= before.size()) {
    for (std::size_t p = before.size(); p-- > 0;) {
      if (before[p] && !after[p]) remove_parameter(result.model, p);
    }
  }
  if (size_of(result) >= size_of(item) || !why_unsupported(result).empty()) return std::nullopt;
  return result;
}

Case case_of(std::uint64_t seed, const std::vector<int>& edits) {
  Case item = generate(seed);
  for (int edit : edits) {
    std::optional<Case> next = apply_edit(item, edit);
    if (!next) throw std::invalid_argument("edit " + std::to_string(edit) + " does not apply");
    item = std::move(*next);
  }
  return item;
}

Case shrink(Case item, int trials, const std::function<bool(const Case&)>& still_fails) {
  for (bool progress = true; progress;) {
    progress = false;
    for (int n = 0; n < edit_count(item) && trials > 0;) {
      std::optional<Case> smaller = apply_edit(item, n);
      if (smaller && trials-- > 0 && still_fails(*smaller)) {
        item = std::move(*smaller);
        progress = true;
      } else {
        ++n;
      }
    }
  }
  return item;
}

}  // namespace lockstep::fuzz
