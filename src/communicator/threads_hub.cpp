#include "communicator/threads_hub.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "transport/inproc/inproc_host.h"

namespace lockstep {

Result<Mesh> ThreadsHub::join(const std::string& scope, int rank, int size, Deadline deadline) {
  std::unique_lock lock(mutex_);
  auto& entry = meetings_[scope];
  if (!entry) {
    entry = std::make_shared<Meeting>();
    entry->present.resize(static_cast<std::size_t>(size));
  }
  const std::shared_ptr<Meeting> meeting = entry;
  const auto index = static_cast<std::size_t>(rank);
  if (static_cast<int>(meeting->present.size()) != size || meeting->present[index]) {
    return Status(StatusCode::already_exists,
                  fmt::format("two threads claim rank {} of '{}', or they disagree on its size", rank, scope));
  }
  meeting->present[index] = true;
  if (++meeting->count == size) {
    meetings_.erase(scope);  // the same name may be used again
    auto meshes = make_inproc_meshes(size, scope);
    meeting->status = meshes.status();
    if (meshes.ok()) meeting->meshes = std::move(*meshes);
    changed_.notify_all();
  }
  const bool complete = changed_.wait_until(lock, deadline.when(), [&] { return meeting->count == size; });
  if (!complete) {
    std::vector<int> missing;
    for (int r = 0; r < size; ++r) {
      if (!meeting->present[static_cast<std::size_t>(r)]) missing.push_back(r);
    }
    meeting->present[index] = false;
    --meeting->count;
    return Status(StatusCode::timed_out, fmt::format("forming '{}': of {} ranks, these did not join: {}", scope, size,
                                                     fmt::join(missing, ", ")));
  }
  LOCKSTEP_RETURN_IF_ERROR(meeting->status);
  return std::move(meeting->meshes[index]);
}

}  // namespace lockstep
