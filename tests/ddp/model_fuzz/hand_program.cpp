#include "ddp/model_fuzz/hand_program.h"

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

#include "lockstep/ddp/init.h"

namespace lockstep::fuzz {

namespace {

at::Tensor clone_of(const at::Tensor& tensor) { return tensor.defined() ? tensor.detach().clone() : at::Tensor(); }

void broadcast_buffers(ProcessGroup& group, GraphModule& module, int root) {
  for (const at::Tensor& buffer : module.buffers()) {
    at::Tensor flat = buffer.clone().flatten();
    group.broadcast(flat, root, {}).wait();
    buffer.copy_(flat.view(buffer.sizes()));
  }
}

bool overlapping_gradients(const std::vector<at::Tensor>& leaves) {
  std::map<std::uintptr_t, std::uintptr_t> blocks;  // begin, end
  for (const at::Tensor& leaf : leaves) {
    if (!leaf.grad().defined() || leaf.grad().numel() == 0) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(leaf.grad().data_ptr());
    const auto end = begin + leaf.grad().nbytes();
    const auto next = blocks.lower_bound(begin);
    if (next != blocks.end() && next->first < end) return true;
    if (next != blocks.begin() && std::prev(next)->second > begin) return true;
    blocks[begin] = end;
  }
  return false;
}

// Autograd would add the next gradient to memory that two parameters share, and so to both; DDP keeps them apart.
void separate_gradients(const std::vector<at::Tensor>& leaves) {
  for (at::Tensor leaf : leaves) leaf.mutable_grad() = clone_of(leaf.grad());
}

}  // namespace

LocalGradients run_pass(const Case& item, Place place, GraphModule& module, const Pass& pass) {
  const Training& training = item.training;
  LocalGradients result;
  for (place.micro = 0; place.micro < training.micro_batches; ++place.micro) {
    const bool last = place.micro + 1 == training.micro_batches;
    const std::shared_ptr<void> guard = last ? nullptr : pass.no_sync();
    const int samples = training.batch(place.step, place.micro, place.rank);
    at::Tensor loss;
    std::vector<at::Tensor> watched_inputs;
    for (place.forward = 0; place.forward < training.forwards; ++place.forward) {
      module.go_to(place);
      const std::vector<at::Tensor> inputs = inputs_of(item, place, samples);
      const at::Tensor part = loss_of(item, pass.forward(inputs, last), samples);
      loss = loss.defined() ? loss + part : part;
      watched_inputs.insert(watched_inputs.end(), inputs.begin(), inputs.end());
    }
    if (training.micro_batches > 1) loss = loss / training.micro_batches;
    pass.before_backward(place.micro);
    loss.backward({}, /*retain_graph=*/last && training.backward_twice);
    result.watched.push_back(module.take_watched());
    pass.after_backward(place.micro, last);
    if (last && training.backward_twice) {
      pass.before_backward(place.micro);
      loss.backward();
      result.watched.push_back(module.take_watched());
      pass.after_backward(place.micro, true);
    }
    for (const at::Tensor& input : watched_inputs) {
      result.inputs.push_back(input.requires_grad() ? clone_of(input.grad()) : at::Tensor());
    }
  }
  return result;
}

std::vector<at::Tensor> whole_batch_gradients(const Case& item, int step, GraphModule& module) {
  const Training& training = item.training;
  std::vector<std::vector<at::Tensor>> parts(item.model.inputs.size());
  int total = 0;
  for (int rank = 0; rank < training.world; ++rank) {
    for (int micro = 0; micro < training.micro_batches; ++micro) {
      const int samples = training.batch(step, micro, rank);
      total += samples;
      const std::vector<at::Tensor> inputs = inputs_of(item, {rank, step, micro, 0}, samples);
      for (std::size_t i = 0; i < inputs.size(); ++i) parts[i].push_back(inputs[i].detach());
    }
  }
  std::vector<at::Tensor> inputs;
  for (const auto& part : parts) inputs.push_back(torch::cat(part));
  module.go_to({0, step, 0, 0});
  const at::Tensor first = inputs[0];
  inputs.erase(inputs.begin());
  loss_of(item, module.forward(first, inputs), total).backward();
  module.take_watched();
  std::vector<at::Tensor> result;
  for (const at::Tensor& leaf : module.leaves()) result.push_back(leaf.grad());
  return result;
}

std::vector<at::Tensor> zero_gradients(GraphModule& module, Zero zero) {
  std::vector<at::Tensor> memory;
  for (at::Tensor leaf : module.leaves()) {
    if (zero == Zero::in_own_memory && leaf.requires_grad()) {
      memory.push_back(at::zeros({leaf.numel() + 3}, leaf.options().requires_grad(false)));
      leaf.mutable_grad() = memory.back().narrow(0, 1, leaf.numel()).view(leaf.sizes());
    }
    if (zero == Zero::to_undefined) leaf.mutable_grad() = at::Tensor();
    if (zero == Zero::in_place && leaf.grad().defined()) leaf.mutable_grad().zero_();
  }
  return memory;
}

HandProgram::HandProgram(const Case& item, std::shared_ptr<ProcessGroup> group, std::int64_t start)
    : case_(item), group_(std::move(group)), module_(std::make_shared<GraphModule>(item, start, /*track=*/true)) {}

void HandProgram::load(GraphModule& other) {
  at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < other.leaves().size(); ++i) {
    at::Tensor leaf = module_->leaves()[i];
    leaf.copy_(other.leaves()[i]);
    leaf.mutable_grad() = clone_of(other.leaves()[i].grad());
  }
  const auto from = other.buffers(), to = module_->buffers();
  for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
}

bool HandProgram::averages() const {
  if (case_.options.hook == Hook::noop) return false;
  return case_.options.hook != Hook::post_local_sgd || passes_ < case_.options.hook_start;
}

double HandProgram::scale_of(const std::vector<char>& active) const {
  const Training& training = case_.training;
  if (case_.options.sample_weighted || training.divide_by_world || !training.joins()) return 1;
  return static_cast<double>(training.world) / static_cast<double>(std::count(active.begin(), active.end(), 1));
}

double HandProgram::weight_of(int step, int micro, const std::vector<char>& active) const {
  const Training& training = case_.training;
  int total = 0, mine = 0;
  for (int rank = 0; rank < training.world; ++rank) {
    const int samples = active[static_cast<std::size_t>(rank)] ? training.batch(step, micro, rank) : 0;
    total += samples;
    if (rank == group_->rank()) mine = samples;
  }
  return total > 0 ? static_cast<double>(mine) * training.world / total : 0;
}

void HandProgram::set_aside(int micro, const std::vector<char>& active) {
  at::NoGradGuard no_grad;
  aside_.assign(module_->leaves().size(), {});
  // Ranks that have ended do not bring what was averaged before.
  const double carry =
      static_cast<double>(active.size()) / static_cast<double>(std::count(active.begin(), active.end(), 1));
  for (std::size_t p = 0; p < aside_.size(); ++p) {
    if (!is_weighted(p)) continue;
    at::Tensor leaf = module_->leaves()[p];
    if (leaf.grad().defined()) aside_[p] = micro == 0 ? leaf.grad() * carry : leaf.grad().clone();
    leaf.mutable_grad() = at::Tensor();
  }
}

void HandProgram::add_weighted(double weight) {
  at::NoGradGuard no_grad;
  for (std::size_t p = 0; p < aside_.size(); ++p) {
    if (!is_weighted(p)) continue;
    at::Tensor leaf = module_->leaves()[p];
    at::Tensor sum = aside_[p];
    if (leaf.grad().defined()) {
      // The factor is not rounded to 16 bits.
      const at::ScalarType exact = leaf.element_size() < 4 ? at::kFloat : leaf.scalar_type();
      const at::Tensor part = weight == 0 ? at::zeros_like(leaf, exact) : leaf.grad().to(exact) * weight;
      sum = (sum.defined() ? sum.to(exact) + part : part).to(leaf.scalar_type());
    }
    leaf.mutable_grad() = sum;
  }
}

bool HandProgram::is_weighted(std::size_t parameter) const {
  return case_.options.sample_weighted && !case_.model.parameters[parameter].frozen &&
         !case_.model.parameters[parameter].ignored;
}

Expected HandProgram::step(int step, const std::vector<char>& active) {
  const int rank = group_->rank();
  const double scale = scale_of(active);
  Expected expected;
  expected.magnitudes.assign(case_.model.parameters.size(), 0);
  module_->forget_received();
  if (!active[static_cast<std::size_t>(rank)]) {
    if (case_.options.broadcast_buffers) {
      const auto root = std::find(active.begin(), active.end(), 1) - active.begin();
      at::NoGradGuard no_grad;
      broadcast_buffers(*group_, *module_, static_cast<int>(root));
    }
    average(active, 0, expected);
    return expected;
  }
  bool broadcast = false, overlapping = false;
  Pass pass;
  pass.forward = [&](std::vector<at::Tensor> inputs, bool synchronised) {
    if (synchronised && case_.options.broadcast_buffers && !broadcast) {
      broadcast = true;
      at::NoGradGuard no_grad;
      broadcast_buffers(*group_, *module_,
                        static_cast<int>(std::find(active.begin(), active.end(), 1) - active.begin()));
    }
    const at::Tensor first = inputs[0];
    inputs.erase(inputs.begin());
    return module_->forward(first, inputs);
  };
  pass.no_sync = [] { return nullptr; };
  pass.before_backward = [&](int micro) { set_aside(micro, active); };
  pass.after_backward = [&](int micro, bool synchronised) {
    add_weighted(weight_of(step, micro, active));
    overlapping |= overlapping_gradients(module_->leaves());
    separate_gradients(module_->leaves());
    if (synchronised) average(active, scale, expected);
  };
  expected.local = run_pass(case_, {rank, step, 0, 0}, *module_, pass);
  const std::vector<int> accumulated = usage_of(case_.model).accumulated;
  const bool again = std::any_of(accumulated.begin(), accumulated.end(), [](int times) { return times > 1; }) ||
                     (case_.training.forwards > 1 && contains(case_.model, Op::checkpoint));
  expected.undefined_sums = overlapping && again;
  for (const at::Tensor& leaf : module_->leaves()) expected.gradients.push_back(clone_of(leaf.grad()));
  for (const at::Tensor& buffer : module_->buffers()) expected.buffers.push_back(buffer.clone());
  return expected;
}

void HandProgram::average(const std::vector<char>& active, double scale, Expected& expected) {
  at::NoGradGuard no_grad;
  const bool takes_part = active[static_cast<std::size_t>(group_->rank())];
  const std::vector<at::Tensor>& leaves = module_->leaves();
  const auto count = static_cast<std::int64_t>(leaves.size());
  at::Tensor used = at::zeros({count}, at::kByte);
  at::Tensor largest = at::zeros({count}, at::kDouble);
  std::vector<at::Tensor> contributions(leaves.size());
  for (std::size_t p = 0; p < leaves.size(); ++p) {
    const Parameter& parameter = case_.model.parameters[p];
    if (parameter.frozen || parameter.ignored) continue;
    used[static_cast<std::int64_t>(p)] = takes_part ? module_->received()[p] : 0;
    const at::Tensor& gradient = leaves[p].grad();
    contributions[p] = at::zeros_like(leaves[p], at::MemoryFormat::Contiguous);
    if (takes_part && gradient.defined() && scale != 0) {
      // The factor is not rounded to 16 bits.
      contributions[p].copy_(scale == 1                     ? gradient
                             : leaves[p].element_size() < 4 ? gradient.to(at::kFloat) * scale
                                                            : gradient * scale);
    }
    if (contributions[p].numel() > 0) {
      largest[static_cast<std::int64_t>(p)] = contributions[p].abs().max().to(at::kDouble);
    }
  }
  group_->all_reduce(used, {.op = ReduceOp::max}).wait();
  group_->all_reduce(largest, {.op = ReduceOp::max}).wait();
  for (std::size_t p = 0; p < leaves.size(); ++p) {
    expected.magnitudes[p] += largest[static_cast<std::int64_t>(p)].item<double>();
    if (used[static_cast<std::int64_t>(p)].item<int>() == 0) continue;
    if (averages() && contributions[p].numel() > 0) group_->all_reduce(contributions[p], {.op = ReduceOp::avg}).wait();
    if (takes_part) const_cast<at::Tensor&>(leaves[p]).mutable_grad() = contributions[p];
  }
  ++passes_;
}

void HandProgram::optimize(double learning_rate) {
  at::NoGradGuard no_grad;
  for (at::Tensor leaf : module_->leaves()) {
    if (leaf.grad().defined()) leaf.add_(leaf.grad(), -learning_rate);
  }
}

void HandProgram::broadcast_all(int root) {
  at::NoGradGuard no_grad;
  broadcast_buffers(*group_, *module_, root);
  for (std::size_t p = 0; p < module_->leaves().size(); ++p) {
    if (case_.model.parameters[p].ignored || module_->leaves()[p].numel() == 0) continue;
    at::Tensor leaf = module_->leaves()[p];
    at::Tensor copy = leaf.detach().clone();
    group_->broadcast(copy, root, {}).wait();
    leaf.copy_(copy);
  }
}

}  // namespace lockstep::fuzz
