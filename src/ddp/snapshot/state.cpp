#include "ddp/snapshot/state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <cxxabi.h>
#include <fmt/format.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <typeinfo>

#include "lockstep/base/status.h"
#include "lockstep/ddp/fused_optimizers.h"
#include "lockstep/ddp/zero_redundancy_optimizer.h"

namespace lockstep::checkpoint {
namespace {

using torch::serialize::InputArchive;

// LibTorch 1.13 writes the options of each group, but its Optimizer::load() leaves them out: a learning rate that a
// scheduler has lowered would jump back.
void load_options(torch::optim::Optimizer& optimizer, InputArchive& archive) {
  InputArchive groups;
  if (!archive.try_read("param_groups", groups)) return;  // an optimizer that saves itself in its own way
  for (std::size_t i = 0; i < optimizer.param_groups().size(); ++i) {
    InputArchive group, options;
    groups.read(fmt::format("param_groups/{}", i), group);
    group.read("options", options);
    optimizer.param_groups()[i].options().serialize(options);
  }
}

// LBFGS's scratch space, which every step fills before it reads it, holds undefined tensors, which archives refuse.
void drop_scratch(const torch::optim::Optimizer& optimizer) {
  if (dynamic_cast<const torch::optim::LBFGS*>(&optimizer) == nullptr) return;
  for (const auto& entry : optimizer.state()) {
    static_cast<torch::optim::LBFGSParamState&>(*entry.second).al(torch::nullopt);
  }
}

// As much as Adam has: two tensors for each parameter. Growing instead would copy everything several times.
std::size_t expected_bytes(const torch::optim::Optimizer& optimizer) {
  std::size_t bytes = std::size_t{1} << 16;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) bytes += 2 * parameter.nbytes() + 1024;
  }
  return bytes;
}

// The device for the state: that of the parameters, whatever device it was saved from. None if they are on several.
torch::optional<at::Device> device_of(const torch::optim::Optimizer& optimizer) {
  torch::optional<at::Device> device;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (device && *device != parameter.device()) return torch::nullopt;
      device = parameter.device();
    }
  }
  return device;
}

}  // namespace

std::string optimizer_to_bytes(const torch::optim::Optimizer& optimizer) {
  try {
    drop_scratch(optimizer);
    torch::serialize::OutputArchive archive;
    optimizer.save(archive);
    std::string bytes;
    bytes.reserve(expected_bytes(optimizer));
    archive.save_to([&bytes](const void* data, std::size_t size) {
      bytes.append(static_cast<const char*>(data), size);
      return size;
    });
    return bytes;
  } catch (const c10::Error& error) {
    throw Error({StatusCode::invalid_argument,
                 fmt::format("{} cannot be saved: {}", optimizer_kind(optimizer), error.what_without_backtrace())});
  }
}

void optimizer_from_bytes(torch::optim::Optimizer& optimizer, std::string_view bytes) {
  // load() keeps what it finds for parameters that had no state yet when they were saved.
  auto before = std::move(optimizer.state());
  optimizer.state().clear();
  try {
    InputArchive archive;
    archive.load_from(bytes.data(), bytes.size(), device_of(optimizer));
    optimizer.load(archive);
    load_options(optimizer, archive);
  } catch (const c10::Error& error) {
    optimizer.state() = std::move(before);
    throw Error({StatusCode::invalid_argument, fmt::format("the saved state does not fit this {}: {}",
                                                           optimizer_kind(optimizer), error.what_without_backtrace())});
  }
}

std::string optimizer_kind(const torch::optim::Optimizer& optimizer) {
  const auto* const sharded = dynamic_cast<const detail::ShardedOptimizer*>(&optimizer);
  const torch::optim::Optimizer& plain = sharded == nullptr ? optimizer : sharded->local();
  if (const auto* const fused = dynamic_cast<const optim::FusedOptimizer*>(&plain)) return fused->state_kind();
  const char* const mangled = typeid(plain).name();
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(mangled, nullptr, nullptr, nullptr),
                                                         &std::free);
  return name == nullptr ? mangled : name.get();
}

std::string rng_to_bytes() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  const at::Tensor state = generator.get_state();
  return std::string(static_cast<const char*>(state.data_ptr()), state.nbytes());
}

void rng_from_bytes(std::string_view bytes) {
  at::Tensor state = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
  std::memcpy(state.data_ptr(), bytes.data(), bytes.size());
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  try {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  } catch (const c10::Error& error) {
    throw Error({StatusCode::invalid_argument, fmt::format("these {} bytes are not the state of a generator: {}",
                                                           bytes.size(), error.what_without_backtrace())});
  }
}

}  // namespace lockstep::checkpoint
