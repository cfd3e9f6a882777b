#include "ddp/backends/device_router.h"

#include <fmt/format.h>

#include <vector>

#include "communicator/work_state.h"

namespace lockstep::detail {

namespace {

std::string kind_of(const at::Device& device) { return c10::DeviceTypeName(device.type(), /*lower_case=*/true); }

// Complete when all are, with the first error.
Work all_of(std::vector<Work> works) {
  struct Pending {
    std::mutex mutex;
    std::size_t open;  // guarded by mutex
    Status outcome;    // guarded by mutex
  };
  auto pending = std::make_shared<Pending>();
  pending->open = works.size();
  auto state = std::make_shared<WorkState>();
  // Some wait on the thread that needs the result.
  state->set_arrival([works] {
    for (const Work& work : works) {
      if (Status status = work.wait(Deadline::at(Deadline::Clock::time_point::max())); !status.ok()) return status;
    }
    return Status();
  });
  for (const Work& work : works) {
    work.then([pending, state](const Status& status) {
      std::unique_lock lock(pending->mutex);
      if (pending->outcome.ok()) pending->outcome = status;
      if (--pending->open > 0) return;
      lock.unlock();
      state->complete(pending->outcome);
    });
  }
  return Work(std::move(state));
}

}  // namespace

DeviceRouter::DeviceRouter(std::string backend, std::map<std::string, std::shared_ptr<ProcessGroup>> groups)
    : backend_(std::move(backend)), groups_(std::move(groups)) {}

std::shared_ptr<ProcessGroup> DeviceRouter::group_for(const at::Device& device) const {
  const auto found = groups_.find(kind_of(device));
  return found == groups_.end() ? nullptr : found->second;
}

ProcessGroup& DeviceRouter::for_tensor(const at::Tensor& tensor) const {
  if (const auto group = group_for(tensor.device())) return *group;
  throw Error(check(tensor, std::nullopt));
}

std::string DeviceRouter::describe() const {
  std::string text;
  for (const auto& [device, group] : groups_) text += fmt::format("for {}: {}", device, group->describe());
  return text;
}

Status DeviceRouter::check(const at::Tensor& tensor, std::optional<ReduceOp> op) const {
  if (const auto group = group_for(tensor.device())) return group->check(tensor, op);
  return {StatusCode::invalid_argument,
          fmt::format("the tensor is on {}, for which backend \"{}\" names no engine; add one, or move the tensor",
                      tensor.device().str(), backend_)};
}

Work DeviceRouter::submit(const TensorOperation& operation) {
  if (operation.kind != OperationKind::barrier) return for_tensor(operation.tensor()).submit(operation);
  std::vector<Work> works;
  for (const auto& [device, group] : groups_) works.push_back(group->submit(operation));
  return all_of(std::move(works));
}

at::Tensor DeviceRouter::empty(std::int64_t count, at::ScalarType dtype, at::Device device) {
  const auto group = group_for(device);
  return (group ? *group : first()).empty(count, dtype, device);
}

std::shared_ptr<ProcessGroup> DeviceRouter::make_subgroup(std::span<const int> ranks, const std::string& name) {
  std::map<std::string, std::shared_ptr<ProcessGroup>> groups;
  for (const auto& [device, group] : groups_) groups[device] = group->new_group(ranks, name);
  return std::make_shared<DeviceRouter>(backend_, std::move(groups));
}

void DeviceRouter::abort(const std::string& reason) {
  for (const auto& [device, group] : groups_) group->abort(reason);
}

Status DeviceRouter::health() const {
  for (const auto& [device, group] : groups_) {
    if (Status status = group->health(); !status.ok()) return status;
  }
  return {};
}

}  // namespace lockstep::detail
