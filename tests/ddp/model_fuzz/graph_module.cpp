#include "ddp/model_fuzz/graph_module.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "ddp/model_fuzz/replay.h"

namespace lockstep::fuzz {

namespace {

// A node's shape, with the batch's size in it.
Shape sizes_of(const Node& node, const at::Tensor& like) {
  Shape sizes = node.shape;
  if (!sizes.empty() && sizes[0] == kBatch) sizes[0] = like.size(0);
  return sizes;
}

}  // namespace

at::ScalarType scalar_type(Type type) {
  return type == Type::f32 ? at::kFloat : type == Type::f64 ? at::kDouble : at::kBFloat16;
}

GraphModule::GraphModule(const Case& item, std::int64_t start, bool track) : case_(item) {
  const Model& model = item.model;
  received_.assign(model.parameters.size(), 0);
  for (std::size_t p = 0; p < model.parameters.size(); ++p) {
    const Parameter& parameter = model.parameters[p];
    const std::string name = fmt::format("p{}", p);
    const auto salt = static_cast<std::int64_t>(100 + p) + start;
    leaves_.push_back(
        register_parameter(name, values(parameter.shape, salt, scalar_type(parameter.type)), !parameter.frozen));
    if (parameter.two_names) register_parameter(name + "_again", leaves_[p], !parameter.frozen);
    if (parameter.frozen || !(track || parameter.hooked)) continue;
    leaves_[p].register_hook([this, p, name, keep = parameter.hooked](const at::Tensor& gradient) {
      received_[p] = 1;
      if (keep) kept_by_hooks_[name].push_back(gradient);
    });
  }
  for (const Node& node : model.nodes) {
    if (node.op != Op::batch_norm) continue;
    const auto number = static_cast<std::size_t>(node.numbers[0]);
    if (statistics_.size() <= number) statistics_.resize(number + 1);
    const std::int64_t channels = node.shape[1];
    const auto options = at::TensorOptions(scalar_type(node.type));
    statistics_[number] = {
        register_buffer(fmt::format("mean{}", number), at::full({channels}, 0.1 * static_cast<double>(start), options)),
        register_buffer(fmt::format("variance{}", number), at::ones({channels}, options)),
        register_buffer(fmt::format("batches{}", number), at::zeros({}, at::kLong))};
  }
}

std::vector<at::Tensor> GraphModule::forward(const at::Tensor& first, const std::vector<at::Tensor>& more) {
  std::vector<at::Tensor> inputs{first};
  inputs.insert(inputs.end(), more.begin(), more.end());
  return evaluate(inputs);
}

std::vector<at::Tensor> GraphModule::evaluate(const std::vector<at::Tensor>& inputs) {
  const Model& model = case_.model;
  std::vector<at::Tensor> results(model.nodes.size());
  for (std::size_t i = 0; i < model.nodes.size(); ++i) {
    const Node& node = model.nodes[i];
    if (node.segment >= 0) continue;
    if (node.op == Op::checkpoint) {
      const int hole = node.in[1], result = node.in[2];
      const int number = model.nodes[static_cast<std::size_t>(hole)].segment;
      const auto body = [this, number, hole, result](const at::Tensor& x) { return segment(number, hole, result, x); };
      results[i] = c10::GradMode::is_enabled() ? checkpoint(body, results[static_cast<std::size_t>(node.in[0])])
                                               : body(results[static_cast<std::size_t>(node.in[0])]);
    } else {
      results[i] = run(node, results, inputs);
    }
    if (!results[i].requires_grad() || !c10::GradMode::is_enabled()) continue;
    // LibTorch 1.13 crashes on retain_grad() and a hook on a tensor that was changed in place through a view.
    const bool changed_in_place = std::any_of(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(i),
                                              [&](const at::Tensor& other) { return other.is_same(results[i]); });
    if (changed_in_place) continue;
    const std::string name = fmt::format("v{}", i);
    if (node.retain && !results[i].is_leaf()) {  // a parameter's own gradient is averaged
      results[i].retain_grad();
      retained_.emplace_back(name, results[i]);
    }
    if (node.hooked) {
      results[i].register_hook(
          [this, name](const at::Tensor& gradient) { kept_by_hooks_[name + " hook"].push_back(gradient); });
    }
  }
  std::vector<at::Tensor> outputs;
  for (const Output& output : model.outputs) outputs.push_back(results[static_cast<std::size_t>(output.node)]);
  return outputs;
}

at::Tensor GraphModule::segment(int number, int hole, int result, const at::Tensor& x) {
  std::vector<at::Tensor> results(case_.model.nodes.size());
  for (std::size_t i = static_cast<std::size_t>(hole); i <= static_cast<std::size_t>(result); ++i) {
    const Node& node = case_.model.nodes[i];
    if (node.segment != number) continue;
    results[i] = node.op == Op::hole ? x : run(node, results, {});
  }
  return results[static_cast<std::size_t>(result)];
}

at::Tensor GraphModule::run(const Node& node, const std::vector<at::Tensor>& results,
                            const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> in;
  for (int index : node.in) in.push_back(results[static_cast<std::size_t>(index)]);
  const std::vector<std::int64_t>& n = node.numbers;
  switch (node.op) {
    case Op::parameter: return leaves_[static_cast<std::size_t>(n[0])];
    case Op::input: return inputs[static_cast<std::size_t>(n[0])];
    case Op::data: return values(node.shape, n[0] + batch_salt(place_.rank, place_.step, 0, 0), scalar_type(node.type));
    case Op::view:
      return in[0].is_contiguous() ? in[0].view(sizes_of(node, in[0])) : in[0].reshape(sizes_of(node, in[0]));
    case Op::unsqueeze: return in[0].unsqueeze(n[0]);
    case Op::squeeze: return in[0].squeeze(n[0]);
    case Op::transpose: return in[0].transpose(n[0], n[1]);
    case Op::narrow: return in[0].narrow(n[0], n[1], n[2]);
    case Op::slice: return in[0].slice(n[0], c10::nullopt, c10::nullopt, 2);
    case Op::select: return in[0].select(n[0], n[1]);
    case Op::expand: return in[0].expand(sizes_of(node, in[0]));
    case Op::index_select: return rows(in[0], node.shape[0], n[0], n[1]);
    case Op::cat: return torch::cat({in[0], in[1]}, n[0]);
    case Op::to_type: return in[0].to(scalar_type(node.type));
    case Op::contiguous: return in[0].contiguous();
    case Op::add: return in[0] + in[1];
    case Op::mul: return in[0] * in[1];
    case Op::scale: return in[0] * 0.5;
    case Op::tanh: return torch::tanh(in[0]);
    case Op::sigmoid: return torch::sigmoid(in[0]);
    case Op::relu: return torch::relu(in[0]);
    case Op::mean: return in[0].mean(n[0]);
    case Op::sum: return in[0].sum(n[0]) * 0.01;
    case Op::relu_: return in[0].relu_();
    case Op::add_: return in[0].add_(in[1]);
    case Op::narrow_add_: in[0].narrow(n[0], n[1], n[2]).add_(in[1]); return in[0];
    case Op::gate: return passes(n[0], n[1] != 0, place_.rank, place_.step) ? in[1] : in[0];
    default: return run_layer(node, in);
  }
}

at::Tensor GraphModule::run_layer(const Node& node, const std::vector<at::Tensor>& in) {
  switch (node.op) {
    case Op::linear: return torch::linear(in[0], in[1], in.size() > 2 ? in[2] : at::Tensor());
    case Op::matmul: return in[0].matmul(in[1]);
    case Op::embedding: {
      if (node.numbers[0] == 0) return torch::embedding(in[1], in[0]);
      if (node.numbers[0] == 1) return in[1].index_select(0, in[0].flatten()).reshape(sizes_of(node, in[0]));
      return in[1].index({in[0]});
    }
    case Op::conv1d: return torch::conv1d(in[0], in[1], in[2], 1, 1);
    case Op::conv2d: return torch::conv2d(in[0], in[1], {}, 1, 1);
    case Op::layer_norm: return torch::layer_norm(in[0], {node.shape.back()}, in[1], in[2]);
    case Op::batch_norm: {
      const std::vector<at::Tensor>& statistics = statistics_[static_cast<std::size_t>(node.numbers[0])];
      if (is_training()) statistics[2].add_(1);
      // LibTorch 1.13 reads beyond the end of an expanded weight.
      return torch::batch_norm(in[0], in[1].contiguous(), in[2].contiguous(), statistics[0], statistics[1],
                               is_training(), 0.1, 1e-3, false);
    }
    case Op::attention: return attention(in[0], in[1], in[2], in[3]);
    default: throw std::logic_error(fmt::format("node {} cannot be run", name_of(node.op)));
  }
}

GraphModule::Watched GraphModule::take_watched() {
  Watched result;
  for (const auto& [name, gradients] : kept_by_hooks_) {
    for (const at::Tensor& gradient : gradients) result[name].push_back(gradient.clone());
  }
  for (const auto& [name, tensor] : retained_) {
    const at::Tensor gradient = tensor.grad();
    result[name + " retained"].push_back(gradient.defined() ? gradient.clone() : gradient);
  }
  kept_by_hooks_.clear();
  retained_.clear();
  return result;
}

std::vector<at::Tensor> inputs_of(const Case& item, const Place& place, int samples) {
  std::vector<at::Tensor> result;
  for (std::size_t i = 0; i < item.model.inputs.size(); ++i) {
    const Input& input = item.model.inputs[i];
    Shape sizes = input.shape;
    sizes[0] = samples;
    const std::int64_t salt =
        batch_salt(place.rank, place.step, place.micro, place.forward) + 1000 * static_cast<std::int64_t>(i);
    if (input.tokens > 0) {
      result.push_back(tokens(sizes, salt, input.tokens));
    } else {
      // The type of the model, which is that of the node that takes it.
      at::ScalarType type = at::kFloat;
      for (const Node& node : item.model.nodes) {
        if (node.op == Op::input && node.numbers[0] == static_cast<std::int64_t>(i)) type = scalar_type(node.type);
      }
      result.push_back(values(sizes, salt, type).requires_grad_(input.requires_grad));
    }
  }
  return result;
}

at::Tensor loss_of(const Case& item, const std::vector<at::Tensor>& outputs, int samples) {
  at::Tensor loss;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const at::Tensor& output = outputs[i];
    at::Tensor sum;
    switch (item.model.outputs[i].loss) {
      case Loss::sum: sum = output.sum(); break;
      case Loss::square: sum = output.pow(2).sum(); break;
      case Loss::weighted: {  // a weight for each place of an output, the same for all samples
        const at::Tensor weights =
            values(output.sizes().slice(1), 5 + static_cast<std::int64_t>(i), output.scalar_type());
        sum = (output * weights).sum();
      }
    }
    loss = loss.defined() ? loss + sum : sum;
  }
  return loss / (item.training.mean_loss ? samples : std::max(samples, 1));
}

}  // namespace lockstep::fuzz
