#include "communicator/message/link_connectors.h"

#include <utility>

#include "base/start_thread.h"

namespace lockstep {
namespace {

constexpr std::size_t kMost = 8;
// Between attempts, the owner may find that nothing is to be sent any more.
constexpr std::chrono::milliseconds kFirstAttempt{1000};
constexpr std::chrono::milliseconds kLongestAttempt{2000};
// Before the next attempt if the system has no thread left.
constexpr std::chrono::milliseconds kThreadPause{100};

}  // namespace

LinkConnectors::LinkConnectors(int ranks, Attempt attempt) : attempt_(std::move(attempt)), times_(ranks) {}

void LinkConnectors::join_ended() {
  for (const int rank : std::exchange(ended_, {})) {
    const auto entry = threads_.find(rank);
    entry->second.join();  // it does not need the mutex any more
    threads_.erase(entry);
  }
}

std::optional<LinkConnectors::NotStarted> LinkConnectors::start(const std::function<bool(int)>& wanted) {
  join_ended();
  const auto now = Deadline::Clock::now();
  if (now < again_) return std::nullopt;
  const int first = next_;
  for (int i = 0; i < times_.size() && threads_.size() < kMost; ++i) {
    const int rank = (first + i) % times_.size();
    if (threads_.contains(rank) || !wanted(rank)) continue;
    auto& time = times_[rank];
    if (!time) time.emplace(kFirstAttempt, kLongestAttempt);
    auto thread =
        start_thread("connects to a peer for messages", [this, rank, limit = time->next()] { attempt_(rank, limit); });
    if (!thread.ok()) {
      again_ = now + kThreadPause;
      return NotStarted{rank, thread.status().message()};
    }
    threads_.emplace(rank, *std::move(thread));
    next_ = rank + 1;
  }
  return std::nullopt;
}

void LinkConnectors::join_all() {
  for (auto& [rank, thread] : threads_) thread.join();
  threads_.clear();
  ended_.clear();
}

}  // namespace lockstep
