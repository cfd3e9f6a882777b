// DataParallel, the predecessor of DDP: one process; every forward splits its batch over replicas of the module,
// each in a thread of its own.
//
//   torch::nn::Sequential model(...);
//   lockstep::DataParallel dp(model, {.replicas = 4});
//   torch::optim::SGD optimizer(dp->parameters(), 0.01);
//   auto loss = torch::mse_loss(dp(input), target);
//   loss.backward();
//
// It is here for comparison: DistributedDataParallel does not have to gather outputs, reduces gradients while
// backward runs, and scales beyond one process.
//
// Every tensor of the input is split along dimension 0 into parts of equal size (the last may be smaller; a
// small batch uses fewer replicas); 0-dimensional tensors and everything else go to all replicas. Outputs
// are concatenated along dimension 0, in order; 0-dimensional ones become a vector with one value per replica.
// If one replica suffices, forward() calls the module's own. backward() runs the replicas in their threads too,
// and adds their gradients in the order of replicas, so that the result does not depend on timing.
//
// The module must have clone(), as torch::nn::Cloneable and all of torch::nn have. Replicas are cloned once and
// then share the memory of the module's parameters. Before every forward they copy its buffers,
// train()/eval() and requires_grad; after any other change to the module (another dropout rate) create a new
// DataParallel. Changes that replica 0 makes in place to its buffers (batch norm's running statistics) change
// the module's; those of the other replicas are dropped.
//
// Not thread-safe. Dropout draws from one generator for all threads, in the order in which they ask for
// numbers. backward(create_graph = true) is not possible and throws.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/ddp/output_tensors.h"

namespace lockstep {

struct DataParallelOptions {
  // 0: as many as the machine has cores.
  int replicas = 0;
  // Threads that each replica's operators may use; 0: LibTorch's number of threads / replicas.
  int threads_per_replica = 0;
};

namespace detail {

// Everything that does not depend on the module's type: replicas, threads, and the path of gradients.
class ReplicaSet {
 public:
  ReplicaSet(std::shared_ptr<torch::nn::Module> module, const DataParallelOptions& options);
  ~ReplicaSet();
  ReplicaSet(const ReplicaSet&) = delete;
  ReplicaSet& operator=(const ReplicaSet&) = delete;

  // How many replicas these inputs need. Throws Error if they cannot be split together.
  int replicas_for(const std::vector<at::Tensor>& inputs) const;

  // Tensors in, tensors out, for one replica, on its thread.
  using Forward = std::function<std::vector<at::Tensor>(std::size_t replica, torch::nn::Module& module,
                                                        std::vector<at::Tensor> inputs)>;
  // The joined outputs. Throws Error with the number of the replica that failed, after all have ended.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs, const Forward& forward);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Replaces every defined tensor by replace(tensor), in the order of for_each_tensor.
template <typename T, typename F>
void replace_tensors(T& value, F&& replace) {
  if constexpr (std::is_base_of_v<at::Tensor, T>) {
    if (value.defined()) value = replace(value);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_convertible_v<T, std::string_view>) {
    // No tensors here.
  } else if constexpr (std::ranges::range<T>) {
    for (auto& element : value) replace_tensors(element, replace);
  } else if constexpr (TupleLike<T>) {
    std::apply([&](auto&... elements) { (replace_tensors(elements, replace), ...); }, value);
  } else if constexpr (OptionalLike<T>) {
    if (value.has_value()) replace_tensors(*value, replace);
  } else {
    static_assert(std::is_arithmetic_v<T>,
                  "DataParallel supports tensors and optional, vector, array, pair, tuple and map of them");
  }
}

template <typename... Values>
std::vector<at::Tensor> tensors_in(const Values&... values) {
  std::vector<at::Tensor> tensors;
  (for_each_tensor(values, [&](const at::Tensor& tensor) { tensors.push_back(tensor); }), ...);
  return tensors;
}

template <typename... Values>
void put_tensors(const std::vector<at::Tensor>& tensors, Values&... values) {
  std::size_t next = 0;
  (replace_tensors(values, [&](const at::Tensor&) { return tensors[next++]; }), ...);
}

template <typename M>
auto shared_module(const M& module) {
  if constexpr (requires { module.ptr(); }) {
    return module.ptr();
  } else {
    return module;
  }
}

}  // namespace detail

// `M`: a ModuleHolder, a Sequential, or a shared_ptr to a module.
template <typename M>
class DataParallel {
 public:
  // Throws Error if the options make no sense, and what clone() throws.
  explicit DataParallel(M module, const DataParallelOptions& options = {})
      : module_(std::move(module)), replicas_(detail::shared_module(module_), options) {}

  template <typename... Inputs>
  auto forward(const Inputs&... inputs) {
    using Module = std::remove_reference_t<decltype(*module_)>;
    using Output = std::remove_cvref_t<decltype(module_->forward(inputs...))>;
    const std::vector<at::Tensor> tensors = detail::tensors_in(inputs...);
    const int used = replicas_.replicas_for(tensors);
    if (used == 1) return Output(module_->forward(inputs...));
    std::vector<std::optional<Output>> outputs(static_cast<std::size_t>(used));
    const std::vector<at::Tensor> joined = replicas_.run(
        tensors, [&](std::size_t replica, torch::nn::Module& module, const std::vector<at::Tensor>& part) {
          std::tuple<std::decay_t<const Inputs>...> arguments(inputs...);
          std::apply([&](auto&... argument) { detail::put_tensors(part, argument...); }, arguments);
          outputs[replica].emplace(std::apply(
              [&](auto&... argument) { return dynamic_cast<Module&>(module).forward(argument...); }, arguments));
          return detail::tensors_in(*outputs[replica]);
        });
    detail::put_tensors(joined, *outputs[0]);
    return std::move(*outputs[0]);
  }
  template <typename... Inputs>
  auto operator()(const Inputs&... inputs) {
    return forward(inputs...);
  }

  // The module: its parameters are the ones to optimise.
  auto* operator->() { return &*module_; }
  M& module() { return module_; }

 private:
  M module_;
  detail::ReplicaSet replicas_;
};

// One forward, with replicas that are created for this call.
template <typename M, typename Input>
auto data_parallel(M module, const Input& input, int replicas) {
  return DataParallel<M>(std::move(module), {.replicas = replicas}).forward(input);
}

}  // namespace lockstep
