// Rank 0 gets a message from every rank and then answers all of them: with nothing, or with the reason why it gave up.
// Waits end at the deadline without ending the messages, so that the group stays usable. A message that was never sent
// is matched by the late rank's barrier, which therefore fails too.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "python/sequences.h"

namespace lockstep::python {
namespace {

using Arrival = std::array<std::uint8_t, 1>;
// Answers have one size, because both sides of a message must agree on it.
using Answer = std::array<std::uint8_t, 512>;

// The messages of a barrier that failed stay posted; only the end of the group ends them.
constexpr CallOptions kUntilTheEnd{.timeout = std::chrono::hours(24 * 365)};

// Rank 0 answers at the deadline; the answer needs some time.
constexpr std::chrono::milliseconds kAnswerGrace{2000};

template <typename Value>
Work receive(Communicator& group, const std::shared_ptr<Value>& value, int source) {
  const Work work = group.recv_async(std::span(*value), source, kMonitoredBarrierTag, kUntilTheEnd);
  work.then([value](const Status&) {});  // the memory lives as long as the message may arrive
  return work;
}
template <typename Value>
Work send(Communicator& group, const std::shared_ptr<Value>& value, int destination) {
  const Work work = group.send_async(std::span(std::as_const(*value)), destination, kMonitoredBarrierTag, kUntilTheEnd);
  work.then([value](const Status&) {});
  return work;
}

void lead(Communicator& group, std::chrono::milliseconds timeout, bool wait_all_ranks) {
  const Deadline deadline = Deadline::after(timeout);
  std::vector<Work> arrivals;
  for (int rank = 1; rank < group.size(); ++rank) arrivals.push_back(receive(group, std::make_shared<Arrival>(), rank));
  std::vector<int> missing;
  std::vector<std::string> names;
  for (int rank = 1; rank < group.size(); ++rank) {
    const Status status = arrivals[static_cast<std::size_t>(rank - 1)].wait(deadline);
    if (status.ok()) continue;
    if (status.code() != StatusCode::timed_out) throw Error(status);
    if (!group.health().ok()) throw Error(group.health());
    missing.push_back(rank);
    names.push_back(group.describe_rank(rank));
    if (!wait_all_ranks) break;
  }
  std::string reason;
  if (!missing.empty() && timeout.count() == 0) {
    reason =
        fmt::format("Rank 0 timed out in monitoredBarrier after 0 ms: it did not wait for {}", fmt::join(names, ", "));
  } else if (!missing.empty()) {
    reason = fmt::format("{} {} failed to pass monitoredBarrier in {} ms: {} did not call it in time",
                         missing.size() == 1 ? "Rank" : "Ranks", fmt::join(missing, ", "), timeout.count(),
                         fmt::join(names, ", "));
  }
  for (int rank = 1; rank < group.size(); ++rank) {
    if (!arrivals[static_cast<std::size_t>(rank - 1)].is_completed()) continue;
    auto answer = std::make_shared<Answer>();
    std::memcpy(answer->data(), reason.data(), std::min(reason.size(), answer->size() - 1));
    send(group, answer, rank);
  }
  if (!reason.empty()) throw Error(Status(StatusCode::timed_out, reason));
}

void follow(Communicator& group, std::chrono::milliseconds timeout) {
  send(group, std::make_shared<Arrival>(), 0);
  auto answer = std::make_shared<Answer>();
  const auto longest = std::min(timeout, std::chrono::milliseconds::max() - kAnswerGrace);
  const Status status = receive(group, answer, 0).wait(Deadline::after(longest + kAnswerGrace));
  if (status.code() == StatusCode::timed_out && group.health().ok()) {
    throw Error(
        Status(StatusCode::timed_out,
               fmt::format("Rank {} timed out in monitoredBarrier after {} ms: {} did not call it, or is waiting "
                           "for other ranks",
                           group.rank(), timeout.count(), group.describe_rank(0))));
  }
  throw_if_error(status);
  const std::string reason(reinterpret_cast<const char*>(answer->data()));
  if (reason.empty()) return;
  throw Error(Status(StatusCode::timed_out,
                     fmt::format("Rank {} successfully reached monitoredBarrier, but received errors while waiting for "
                                 "send/recv from rank 0: {}",
                                 group.rank(), reason)));
}

}  // namespace

void monitored_barrier(Communicator& group, std::chrono::milliseconds timeout, bool wait_all_ranks) {
  if (group.rank() == 0) return lead(group, timeout, wait_all_ranks);
  follow(group, timeout);
}

}  // namespace lockstep::python
