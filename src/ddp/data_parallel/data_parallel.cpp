#include "lockstep/ddp/data_parallel.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <unordered_set>

#include "base/invalid_argument.h"
#include "ddp/data_parallel/replica_backward.h"
#include "ddp/data_parallel/replica_threads.h"
#include "lockstep/base/status.h"

namespace lockstep::detail {

namespace {

// clone() initialises parameters at random before it copies them: the program's random numbers shall not
// depend on the number of replicas.
std::shared_ptr<torch::nn::Module> clone_of(const torch::nn::Module& module) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  at::Tensor state;
  {
    std::lock_guard lock(generator.mutex());
    state = generator.get_state();
  }
  std::shared_ptr<torch::nn::Module> clone = module.clone();
  std::lock_guard lock(generator.mutex());
  generator.set_state(state);
  return clone;
}

struct Split {
  std::int64_t batch = 0;  // the size of dimension 0
  std::int64_t part = 0;   // of each replica but the last
  int count = 1;
};

Split split_for(const std::vector<at::Tensor>& inputs, int replicas) {
  std::optional<std::int64_t> batch;
  for (const at::Tensor& input : inputs) {
    if (input.dim() == 0) continue;
    if (batch && *batch != input.size(0)) {
      throw_invalid_argument(
          "DataParallel",
          fmt::format("inputs of {} and {} samples in dimension 0 cannot be split together", *batch, input.size(0)));
    }
    batch = input.size(0);
  }
  if (!batch) throw_invalid_argument("DataParallel", "there is no tensor with a dimension 0 to split among the inputs");
  Split split{.batch = *batch, .part = (*batch + replicas - 1) / replicas};
  if (split.part > 0) split.count = static_cast<int>((*batch + split.part - 1) / split.part);
  return split;
}

bool alike(const torch::nn::Module& a, const torch::nn::Module& b) {
  return a.parameters().size() == b.parameters().size() && a.buffers().size() == b.buffers().size();
}

at::Tensor join(const std::vector<ReplicaGraph>& replicas, std::size_t output) {
  std::vector<at::Tensor> parts;
  for (const ReplicaGraph& replica : replicas) {
    const at::Tensor part = replica.outputs[output].detach();
    parts.push_back(part.dim() == 0 ? part.unsqueeze(0) : part);
  }
  return at::cat(parts);
}

}  // namespace

class ReplicaSet::Impl {
 public:
  Impl(std::shared_ptr<torch::nn::Module> module, const DataParallelOptions& options)
      : module_(std::move(module)), count_(options.replicas) {
    if (count_ < 0 || options.threads_per_replica < 0) {
      throw_invalid_argument("DataParallel",
                             fmt::format("replicas is {} and threads_per_replica {}; both must be 0 or more", count_,
                                         options.threads_per_replica));
    }
    for (const auto& item : module_->named_buffers()) {
      if (!item.value().requires_grad()) continue;
      throw_invalid_argument(
          "DataParallel",
          fmt::format("buffer \"{}\" needs a gradient, which only parameters get; use register_parameter()",
                      item.key()));
    }
    if (count_ == 0) count_ = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    if (count_ == 1) return;
    int threads = options.threads_per_replica;
    if (threads == 0) threads = std::max(1, at::get_num_threads() / count_);
    threads_ = std::make_shared<ReplicaThreads>(static_cast<std::size_t>(count_), threads);
    for (int r = 0; r < count_; ++r) replicas_.push_back(clone_of(*module_));
  }

  int replicas_for(const std::vector<at::Tensor>& inputs) const { return split_for(inputs, count_).count; }

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs, const Forward& forward) {
    const Split split = split_for(inputs, count_);
    const bool differentiate = at::GradMode::is_enabled();
    for (int r = 0; r < split.count; ++r) follow(r);
    const auto trained = differentiate ? trained_parameters() : std::vector<std::size_t>();
    const auto sources = differentiate ? gradient_sources(trained, inputs) : std::vector<GradientSource>();

    std::vector<ReplicaGraph> graphs(static_cast<std::size_t>(split.count));
    const at::ThreadLocalState state;
    threads_->run(graphs.size(), "forward", [&](std::size_t r) {
      at::ThreadLocalStateGuard guard(state);
      std::vector<at::Tensor> parts = parts_for(r, inputs, split, differentiate);
      if (differentiate) graphs[r].leaves = leaves_of(r, trained, parts);
      graphs[r].outputs = forward(r, *replicas_[r], std::move(parts));
    });
    return gather(std::move(graphs), sources);
  }

 private:
  // Gives a replica the module's present state.
  void follow(int r) {
    at::NoGradGuard no_grad;
    std::shared_ptr<torch::nn::Module>& replica = replicas_[static_cast<std::size_t>(r)];
    if (!alike(*replica, *module_)) replica = clone_of(*module_);

    const std::vector<at::Tensor> parameters = module_->parameters();
    std::vector<at::Tensor> copies = replica->parameters();
    for (std::size_t i = 0; i < copies.size(); ++i) {
      copies[i].set_data(parameters[i].detach());
      copies[i].set_requires_grad(parameters[i].requires_grad());
    }
    const std::vector<at::Tensor> buffers = module_->buffers();
    copies = replica->buffers();
    for (std::size_t i = 0; i < copies.size(); ++i) {
      copies[i].set_data(r == 0 ? buffers[i].detach() : buffers[i].detach().clone());
    }
    const auto modules = module_->modules();
    const auto cloned = replica->modules();
    for (std::size_t i = 0; i < modules.size(); ++i) cloned[i]->train(modules[i]->is_training());
  }

  // Positions in parameters(). A layer that the module holds twice is one layer in a replica too, and its
  // parameters count once.
  std::vector<std::size_t> trained_parameters() const {
    std::vector<std::size_t> positions;
    std::unordered_set<const c10::TensorImpl*> seen;
    const std::vector<at::Tensor> parameters = replicas_[0]->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].requires_grad() && seen.insert(parameters[i].unsafeGetTensorImpl()).second) {
        positions.push_back(i);
      }
    }
    return positions;
  }

  std::vector<GradientSource> gradient_sources(const std::vector<std::size_t>& trained,
                                               const std::vector<at::Tensor>& inputs) const {
    std::vector<GradientSource> sources;
    const std::vector<at::Tensor> parameters = module_->parameters();
    for (std::size_t i : trained) sources.push_back({parameters[i], false});
    for (const at::Tensor& input : inputs) {
      if (input.requires_grad()) sources.push_back({input, input.dim() > 0});
    }
    return sources;
  }

  static std::vector<at::Tensor> parts_for(std::size_t r, const std::vector<at::Tensor>& inputs, const Split& split,
                                           bool differentiate) {
    at::NoGradGuard no_grad;
    const std::int64_t begin = static_cast<std::int64_t>(r) * split.part;
    std::vector<at::Tensor> parts;
    for (const at::Tensor& input : inputs) {
      at::Tensor part = input.dim() == 0 ? input : input.narrow(0, begin, std::min(split.part, split.batch - begin));
      if (differentiate && input.requires_grad()) part = part.detach().set_requires_grad(true);
      parts.push_back(std::move(part));
    }
    return parts;
  }

  // In the order of gradient_sources().
  std::vector<at::Tensor> leaves_of(std::size_t r, const std::vector<std::size_t>& trained,
                                    const std::vector<at::Tensor>& parts) const {
    std::vector<at::Tensor> leaves;
    const std::vector<at::Tensor> parameters = replicas_[r]->parameters();
    for (std::size_t i : trained) leaves.push_back(parameters[i]);
    for (const at::Tensor& part : parts) {
      if (part.requires_grad()) leaves.push_back(part);
    }
    return leaves;
  }

  std::vector<at::Tensor> gather(std::vector<ReplicaGraph> graphs, const std::vector<GradientSource>& sources) const {
    const std::size_t outputs = graphs[0].outputs.size();
    for (std::size_t r = 1; r < graphs.size(); ++r) {
      if (graphs[r].outputs.size() == outputs) continue;
      throw_invalid_argument(
          "DataParallel",
          fmt::format("replica 0 returned {} tensors and replica {} returned {}; they must return equally many",
                      outputs, r, graphs[r].outputs.size()));
    }
    std::vector<at::Tensor> joined;
    std::vector<char> attach;
    for (std::size_t i = 0; i < outputs; ++i) {
      at::NoGradGuard no_grad;
      joined.push_back(join(graphs, i));
      attach.push_back(std::any_of(graphs.begin(), graphs.end(),
                                   [i](const ReplicaGraph& graph) { return graph.outputs[i].requires_grad(); }));
    }
    if (sources.empty()) return joined;
    const auto node = compat::make_node<ReplicaBackward>(threads_, std::move(graphs), sources);
    for (std::size_t i = 0; i < outputs; ++i) {
      if (attach[i]) ReplicaBackward::attach(node, joined[i], i);
    }
    return joined;
  }

  const std::shared_ptr<torch::nn::Module> module_;
  int count_;
  std::shared_ptr<ReplicaThreads> threads_;  // graphs hold it too: backward may run after the end of this object
  std::vector<std::shared_ptr<torch::nn::Module>> replicas_;
};

ReplicaSet::ReplicaSet(std::shared_ptr<torch::nn::Module> module, const DataParallelOptions& options)
    : impl_(std::make_unique<Impl>(std::move(module), options)) {}
ReplicaSet::~ReplicaSet() = default;

int ReplicaSet::replicas_for(const std::vector<at::Tensor>& inputs) const { return impl_->replicas_for(inputs); }

std::vector<at::Tensor> ReplicaSet::run(const std::vector<at::Tensor>& inputs, const Forward& forward) {
  return impl_->run(inputs, forward);
}

}  // namespace lockstep::detail
