// LibTorch's ProcessGroupNCCL as an engine for CUDA tensors. Lockstep's own engine, which watches beside it, takes CPU
// tensors: through it DDP's ranks agree. docs/nccl.md lists the guarantees.
#include "ddp/backends/c10d/c10d_engine.h"

#ifdef USE_C10D_NCCL

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "base/log.h"
#include "ddp/backends/c10d/c10d_group.h"
#include "ddp/backends/c10d/gpu_choice.h"
#include "ddp/torch_compat.h"

namespace lockstep::detail {

namespace {

using Nccl = ::c10d::ProcessGroupNCCL;

// Shuts down before it is destroyed; without that, NCCL's own destructor assumes a mistake of the program and aborts.
class OrderlyNccl final : public Nccl {
 public:
  using Nccl::Nccl;
  ~OrderlyNccl() override {
    if (aborted_) return;
    try {
      compat::shut_down_engine<Nccl>(*this);
    } catch (const std::exception& error) {
      log_warn("backend \"nccl\" did not shut down: {}", error.what());
    }
  }
  void end() {
    aborted_ = true;
    compat::abort_engine<Nccl>(*this);
  }

 private:
  bool aborted_ = false;
};

// NCCL's own reaction to an error is to end the process. Lockstep ends the operations and names the lost rank. A
// program's own setting stays.
void leave_errors_to_lockstep() { ::setenv(compat::kNcclErrorHandling, "0", 0); }

c10::intrusive_ptr<C10dBackend> make_nccl(const C10dBackendArguments& arguments, at::DeviceIndex gpu, bool connect) {
  const c10::cuda::CUDAGuard guard(gpu);
  leave_errors_to_lockstep();
  auto options = Nccl::Options::create();
  options->timeout = arguments.timeout;
  auto nccl = c10::make_intrusive<OrderlyNccl>(arguments.store, arguments.rank, arguments.size, std::move(options));
  if (!connect) return nccl;
  // NCCL connects with the first operation, and cannot be interrupted then; here there is a deadline.
  std::vector<at::Tensor> token{at::zeros({1}, at::TensorOptions().device(at::kCUDA, gpu))};
  nccl->allreduce(token)->wait();
  c10::cuda::getCurrentCUDAStream(gpu).synchronize();
  return nccl;
}

C10dEngine nccl_engine(at::DeviceIndex gpu, bool connect) {
  C10dBackendTraits traits;
  traits.device = c10::DeviceType::CUDA;
  traits.stream_ordered = true;
  traits.averages = true;
  traits.reduce_scatters = true;
  traits.gathers_flat = true;
  traits.reduces_half = true;
  traits.tags = false;
  traits.bitwise = false;
  traits.close = [](C10dBackend& backend) { static_cast<OrderlyNccl&>(backend).end(); };
  return {.name = "nccl",
          .make = [gpu, connect](const C10dBackendArguments& arguments) { return make_nccl(arguments, gpu, connect); },
          .traits = std::move(traits)};
}

GpuId id_of(at::DeviceIndex gpu) {
  const auto& properties = *at::cuda::getDeviceProperties(gpu);
  GpuId id{};
  static_assert(sizeof properties.uuid.bytes == sizeof id);
  std::memcpy(id.data(), properties.uuid.bytes, sizeof id);
  return id;
}

GpuView view_of(const Communicator& group) {
  return {.local_rank = group.local_rank(),
          .local_size = group.local_size(),
          .visible = static_cast<int>(c10::cuda::device_count())};
}

// Ok if every rank has a GPU of its own, on all ranks the same.
Status agree_on_gpus(GroupRequest& request) {
  Communicator& group = *request.watch().group;
  struct Report {
    GpuId id{};
    std::uint16_t error_bytes = 0;  // of the message; none: there is a GPU
    std::array<char, 366> message{};
  };
  Report mine;
  if (const Result<int> gpu = choose_gpu(view_of(group)); gpu.ok()) {
    mine.id = id_of(static_cast<at::DeviceIndex>(*gpu));
  } else {
    const std::string text = gpu.status().message().substr(0, mine.message.size());
    mine.error_bytes = static_cast<std::uint16_t>(text.size());
    std::memcpy(mine.message.data(), text.data(), text.size());
  }
  std::vector<Report> all(static_cast<std::size_t>(group.size()));
  group.all_gather(Buffer(std::span(reinterpret_cast<std::uint8_t*>(&mine), sizeof mine)),
                   Buffer(std::span(reinterpret_cast<std::uint8_t*>(all.data()), all.size() * sizeof mine)));
  std::vector<GpuId> ids;
  std::vector<std::string> names;
  for (int rank = 0; rank < group.size(); ++rank) {
    const Report& report = all[static_cast<std::size_t>(rank)];
    names.push_back(group.describe_rank(rank));
    ids.push_back(report.id);
    if (report.error_bytes == 0) continue;
    const std::string text(report.message.data(), std::min<std::size_t>(report.error_bytes, report.message.size()));
    return {StatusCode::unavailable, fmt::format("{}: {}", names.back(), text)};
  }
  return check_distinct_gpus(ids, names);
}

std::shared_ptr<ProcessGroup> make_nccl_group(GroupRequest& request) {
  const ProcessGroupOptions& options = request.options();
  const WatchGroup& watch = request.watch();
  const auto gpu = static_cast<at::DeviceIndex>(value_or_throw(choose_gpu(view_of(*watch.group))));
  c10::cuda::set_device(gpu);
  auto engine = std::make_shared<const C10dEngine>(nccl_engine(gpu, !request.by_default()));
  return std::make_shared<C10dGroup>(request.own_watch(), std::move(engine),
                                     C10dTimeouts{.operation = options.timeout, .init = options.init_timeout});
}

Status available() {
  if (c10::cuda::device_count() > 0) return {};
  return choose_gpu({.visible = 0}).status();
}

}  // namespace

BackendEntry nccl_backend() {
  return {.available = available, .make = make_nccl_group, .device = "cuda", .agree = agree_on_gpus};
}

}  // namespace lockstep::detail

#else

namespace lockstep::detail {

BackendEntry nccl_backend() { return lacking_backend("NCCL"); }

}  // namespace lockstep::detail

#endif
