#include "ddp/backends/mpi/mpi_group.h"

#include <fmt/format.h>

#include <cstdlib>
#include <new>
#include <utility>

#include "ddp/backends/tensor_check.h"
#include "ddp/group/operation_label.h"
#include "mpi/plugin.h"

namespace lockstep::detail {

namespace {

void check_placement(const ProcessGroupOptions& options, const ProcessGroup& group) {
  const auto check = [](const char* what, std::optional<int> given, int is) {
    if (!given || *given == is) return;
    throw Error(
        {StatusCode::invalid_argument,
         fmt::format("init_process_group: ProcessGroupOptions::{} is {}, but in MPI it is {}; leave it unset, the "
                     "backend takes it from MPI",
                     what, *given, is)});
  };
  check("rank", options.rank, group.rank());
  check("world_size", options.world_size, group.size());
}

}  // namespace

Status MpiGroup::check(const at::Tensor& tensor, std::optional<ReduceOp> op) const {
  return check_tensor(backend_, at::kCPU, tensor, op);
}

Work MpiGroup::submit(const TensorOperation& operation) {
  auto tensors = std::make_shared<std::pair<at::Tensor, at::Tensor>>(operation.input, operation.output);
  return communicator_->submit(engine_operation(operation, OperationLabel::current()), std::move(tensors));
}

at::Tensor MpiGroup::empty(std::int64_t count, at::ScalarType dtype, at::Device device) {
  return at::empty({count}, at::TensorOptions().dtype(dtype).device(device));
}

// MPI takes any memory; aligned for vectors, as LibTorch's own is.
ProcessGroup::Memory MpiGroup::allocate(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  void* const data =
      std::aligned_alloc(kAlignment, (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment);
  if (data == nullptr) throw std::bad_alloc();
  return {static_cast<std::byte*>(data), std::shared_ptr<void>(data, std::free)};
}

std::shared_ptr<ProcessGroup> MpiGroup::make_subgroup(std::span<const int> ranks, const std::string& name) {
  return std::make_shared<MpiGroup>(value_or_throw(communicator_->new_group(ranks, name)), backend_);
}

Status mpi_available(const std::string& backend) { return mpi::find_plugin(backend, process_environment()).status(); }

std::shared_ptr<ProcessGroup> make_mpi_group(const ProcessGroupOptions& options, const std::string& backend) {
  CommunicatorOptions group_options;
  group_options.name = options.group_name;
  group_options.timeout = options.timeout;
  group_options.init_timeout = options.init_timeout;
  group_options.peer_timeout = options.peer_timeout;
  auto group =
      std::make_shared<MpiGroup>(value_or_throw(mpi::MpiCommunicator::create_world(backend, group_options)), backend);
  check_placement(options, *group);
  return group;
}

}  // namespace lockstep::detail
