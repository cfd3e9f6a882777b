// Every difference between the LibTorch versions that Lockstep builds with (1.13 to 2.14), c10d included; nothing else
// depends on LibTorch's version, except for the alias C10dBackend of lockstep/ddp/backends.h.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/optim/optimizer.h>
#include <torch/version.h>

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#define LOCKSTEP_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

namespace lockstep::compat {

// A post hook of a gradient accumulator: called when the node has run, with the gradient that it was given.
class PostHook : public torch::autograd::FunctionPostHook {
 public:
  explicit PostHook(std::function<void(const at::Tensor&)> function) : function_(std::move(function)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& inputs) override {
    static const at::Tensor none;
    function_(inputs.empty() ? none : inputs[0]);
    return outputs;
  }

 private:
  std::function<void(const at::Tensor&)> function_;
};

// A pre hook that only reports that backward has reached a node.
class PreHook : public torch::autograd::FunctionPreHook {
 public:
  explicit PreHook(std::function<void()> function) : function_(std::move(function)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    function_();
    return gradients;
  }

 private:
  std::function<void()> function_;
};

// What owns a node of the graph: a shared_ptr, and an intrusive_ptr in later versions (2.14 has it).
using NodePointer = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

template <typename Node>
using NodePointerTo = std::conditional_t<std::is_same_v<NodePointer, std::shared_ptr<torch::autograd::Node>>,
                                         std::shared_ptr<Node>, c10::intrusive_ptr<Node>>;

template <typename Node, typename... Arguments>
NodePointerTo<Node> make_node(Arguments&&... arguments) {
  if constexpr (std::is_same_v<NodePointerTo<Node>, std::shared_ptr<Node>>) {
    return std::make_shared<Node>(std::forward<Arguments>(arguments)...);
  } else {
    return c10::make_intrusive<Node>(std::forward<Arguments>(arguments)...);
  }
}

inline NodePointer gradient_accumulator(const at::Tensor& parameter) {
  return torch::autograd::impl::grad_accumulator(parameter);
}
// The accumulator if there is one; null otherwise.
inline NodePointer existing_accumulator(const at::Tensor& parameter) {
  return torch::autograd::impl::try_get_grad_accumulator(parameter);
}

// Calls `function` whenever backward reaches the operation that computed `output`, which must not be a leaf. On the
// operation rather than the tensor: LibTorch 1.13 crashes if a tensor that was changed in place through a view has
// retain_grad() and a hook. If the output is a view, also on the operation that computed what it is a view of: a
// program that changes the view in place replaces the view's own node. May call it twice.
inline void when_backward_reaches(const at::Tensor& output, const std::function<void()>& function) {
  output.grad_fn()->add_pre_hook(std::make_unique<PreHook>(function));
  if (!output.is_view()) return;
  const auto& viewed = output._base().grad_fn();
  if (viewed && viewed != output.grad_fn()) viewed->add_pre_hook(std::make_unique<PreHook>(function));
}

// How many PostHooks a node has.
inline std::size_t count_post_hooks(const torch::autograd::Node& node) {
  std::size_t count = 0;
  for (const auto& hook : node.post_hooks()) count += dynamic_cast<const PostHook*>(hook.get()) != nullptr ? 1 : 0;
  return count;
}

// True in a hook of backward(), which fills every .grad; false in one of autograd::grad() or backward(inputs).
inline bool backward_fills_all_gradients() {
  const auto* chosen = torch::autograd::get_current_graph_task_exec_info();
  return chosen == nullptr || chosen->empty();
}

// Identifies the backward that runs on this thread: that of backward() or autograd::grad(), or one inside of it.
inline const void* running_backward() { return torch::autograd::get_current_graph_task_exec_info(); }

// Calls `function` when the backward that runs on this thread is over, on the thread that called it.
inline void at_end_of_backward(std::function<void()> function) {
  torch::autograd::Engine::get_default_engine().queue_callback(std::move(function));
}

// The key of a parameter in an optimizer's state(): the address of its implementation, as text until 2.0.
template <typename Optimizer = torch::optim::Optimizer>
auto optimizer_state_key(const at::Tensor& parameter) {
  using Key = std::remove_cvref_t<decltype(std::declval<Optimizer&>().state().begin()->first)>;
  if constexpr (std::is_same_v<Key, std::string>) {
    return c10::str(parameter.unsafeGetTensorImpl());
  } else {
    return static_cast<Key>(parameter.unsafeGetTensorImpl());
  }
}

// Base of an allocator that wraps another one. LibTorch 2.3 made copy_data() pure.
class WrappingAllocator : public c10::Allocator {
 public:
  explicit WrappingAllocator(c10::Allocator* wrapped) : wrapped_(wrapped) {}
#if LOCKSTEP_TORCH_AT_LEAST(2, 3)
  at::DataPtr allocate(std::size_t bytes) override { return allocate_bytes(bytes); }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }
#else
  at::DataPtr allocate(std::size_t bytes) const override {
    return const_cast<WrappingAllocator*>(this)->allocate_bytes(bytes);
  }
#endif

 protected:
  virtual at::DataPtr allocate_bytes(std::size_t bytes) = 0;
  c10::Allocator* wrapped_;
};

// Types of one byte, if this LibTorch has them.
#if LOCKSTEP_TORCH_AT_LEAST(2, 1)
inline constexpr std::optional<at::ScalarType> kFloat8_e4m3fn = at::kFloat8_e4m3fn;
inline constexpr std::optional<at::ScalarType> kFloat8_e5m2 = at::kFloat8_e5m2;
#else
inline constexpr std::optional<at::ScalarType> kFloat8_e4m3fn;
inline constexpr std::optional<at::ScalarType> kFloat8_e5m2;
#endif

// The environment variable that controls how ProcessGroupNCCL handles an error.
#if LOCKSTEP_TORCH_AT_LEAST(2, 2)
inline constexpr const char* kNcclErrorHandling = "TORCH_NCCL_ASYNC_ERROR_HANDLING";
#else
inline constexpr const char* kNcclErrorHandling = "NCCL_ASYNC_ERROR_HANDLING";
#endif

// How `Engine`, a class of c10d, shuts down and aborts, if it can; versions have these functions with different
// signatures, or not at all.
template <typename Engine>
void shut_down_engine(Engine& engine) {
  if constexpr (requires { engine.Engine::shutdown(); }) engine.Engine::shutdown();
}
template <typename Engine>
void abort_engine(Engine& engine) {
  if constexpr (requires { engine.Engine::abort(); }) engine.Engine::abort();
}

// How a backend reports an error to PyTorch.
[[noreturn]] inline void throw_backend_error(const std::string& message) {
#if LOCKSTEP_TORCH_AT_LEAST(2, 0)
  C10_THROW_ERROR(DistBackendError, message);
#else
  throw std::runtime_error(message);
#endif
}

}  // namespace lockstep::compat
