#include "transport/host_arena.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "lockstep/base/deadline.h"

namespace lockstep {
namespace {

constexpr std::size_t kPage = 4096;
// Another rank writes its reason in a microsecond, unless it is stopped or killed there.
constexpr std::chrono::milliseconds kWritingTime{50};

struct Offsets {
  Offsets(int local_size, int group_size) {
    const auto locals = static_cast<std::size_t>(local_size);
    failure = sizeof(HostWords);
    areas = failure + sizeof(SharedFailure);
    states = areas + locals * sizeof(SharedArea);
    payloads = round_up(states + static_cast<std::size_t>(group_size) * sizeof(RankState));
    staging = payloads + locals * 2 * kInlineCapacity;
    end = staging + locals * kStagingBytes;
  }
  static std::size_t round_up(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

  std::size_t failure, areas, states, payloads, staging, end;
};

}  // namespace

std::size_t HostArena::bytes(int local_size, int group_size) { return Offsets(local_size, group_size).end; }

HostArena::HostArena(std::shared_ptr<const void> memory, std::byte* data, int local_size, int group_size)
    : memory_(std::move(memory)), local_size_(local_size), group_size_(group_size) {
  const Offsets at(local_size, group_size);
  words_ = reinterpret_cast<HostWords*>(data);
  failure_ = reinterpret_cast<SharedFailure*>(data + at.failure);
  areas_ = reinterpret_cast<SharedArea*>(data + at.areas);
  states_ = reinterpret_cast<RankState*>(data + at.states);
  payloads_ = data + at.payloads;
  staging_ = data + at.staging;
}

Status HostArena::record_failure(const Status& reason) const {
  std::uint32_t none = 0;
  if (!failure_->stage.compare_exchange_strong(none, 1)) return wait_for_failure().value_or(reason);
  const auto length = std::min(reason.message().size(), SharedFailure::kCapacity);
  failure_->code = static_cast<std::uint32_t>(reason.code());
  failure_->length = static_cast<std::uint32_t>(length);
  std::memcpy(failure_->text, reason.message().data(), length);
  failure_->stage.store(2, std::memory_order_release);  // pairs with the acquire in failure()
  return reason;
}

std::optional<Status> HostArena::wait_for_failure() const {
  const Deadline deadline = Deadline::after(kWritingTime);
  auto written = failure();
  for (; !written && !deadline.expired(); written = failure()) ::sched_yield();
  return written;
}

std::optional<Status> HostArena::failure() const {
  if (failure_->stage.load(std::memory_order_acquire) != 2) return std::nullopt;  // pairs with record_failure()
  const bool known = failure_->code > 0 && failure_->code <= static_cast<std::uint32_t>(StatusCode::internal);
  const auto length = std::min<std::size_t>(failure_->length, SharedFailure::kCapacity);
  return Status(known ? static_cast<StatusCode>(failure_->code) : StatusCode::internal,
                std::string(failure_->text, length));
}

}  // namespace lockstep
