#include "communicator/peer_progress.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace lockstep {

void PeerProgress::set_completed(const OpDescriptor& op) {
  completed_.store(op.sequence, std::memory_order_relaxed);  // heartbeats report it; nothing depends on it
  history_[op.sequence % history_.size()] = op;
}

void PeerProgress::set_waiting(const std::optional<OpDescriptor>& op) {
  const std::lock_guard lock(mutex_);
  waiting_ = op;
}

Heartbeat PeerProgress::heartbeat() const {
  const std::lock_guard lock(mutex_);
  return Heartbeat{completed_.load(std::memory_order_relaxed), waiting_};  // written by set_completed()
}

Goodbye PeerProgress::goodbye() const {
  return Goodbye{completed_.load(std::memory_order_relaxed)};  // written by a thread that is done
}

// A rank that only sends, such as the root of a broadcast, continues before the others see what it sent: then
// the mismatch shows in a later operation, and the operation that differed is among the earlier ones.
Status PeerProgress::with_history(const Status& status) const {
  const std::uint64_t completed = completed_.load(std::memory_order_relaxed);  // written by this thread
  if (status.code() != StatusCode::mismatch || completed == 0) return status;
  std::vector<std::string> calls;
  for (std::uint64_t back = std::min<std::uint64_t>(history_.size(), completed); back > 0; --back) {
    calls.push_back(describe(history_[(completed - back + 1) % history_.size()]));
  }
  return Status(status.code(), fmt::format("{} (before that, rank {} called {})", status.message(), topology_.rank,
                                           fmt::join(calls, ", ")));
}

void PeerProgress::on_heartbeat(int rank, const Heartbeat& heartbeat) {
  const std::lock_guard lock(mutex_);
  peers_[rank].completed = heartbeat.completed;
  peers_[rank].waiting = heartbeat.waiting;
}

void PeerProgress::on_goodbye(int rank, const Goodbye& goodbye) {
  const std::lock_guard lock(mutex_);
  peers_[rank].completed = goodbye.completed;
  peers_[rank].left = true;
}

void PeerProgress::set_gone(int rank) {
  const std::lock_guard lock(mutex_);
  peers_[rank].gone = true;
}

bool PeerProgress::is_gone(int rank) const {
  const std::lock_guard lock(mutex_);
  return peers_[rank].gone;
}

bool PeerProgress::has_left(int rank) const {
  const std::lock_guard lock(mutex_);
  return peers_[rank].left;
}

Status PeerProgress::expect_all(std::uint64_t sequence) const {
  const std::lock_guard lock(mutex_);
  for (int rank = 0; rank < peers_.size(); ++rank) {
    const auto& peer = peers_[rank];
    if (!peer.left || peer.completed >= sequence) continue;
    return Status(StatusCode::peer_lost,
                  fmt::format("{} has left the group (its program destroyed it) after operation #{}, but rank {} "
                              "called operation #{}; every rank must issue the same collectives",
                              topology_.member(rank).describe(), peer.completed, topology_.rank, sequence));
  }
  return Status();
}

std::vector<int> PeerProgress::not_yet_at(std::uint64_t sequence) const {
  const std::lock_guard lock(mutex_);
  std::vector<int> ranks;
  for (int rank = 0; rank < topology_.size(); ++rank) {
    const auto& peer = peers_[rank];
    const bool reached = peer.completed >= sequence || (peer.waiting && peer.waiting->sequence >= sequence);
    if (rank != topology_.rank && !reached) ranks.push_back(rank);
  }
  return ranks;
}

Status PeerProgress::compare(const OpDescriptor& op) const {
  const std::lock_guard lock(mutex_);
  for (int rank = 0; rank < topology_.size(); ++rank) {
    const auto& theirs = peers_[rank].waiting;
    if (theirs && theirs->sequence == op.sequence && *theirs != op) {
      return mismatch_error(topology_.rank, op, rank, *theirs);
    }
  }
  return Status();
}

}  // namespace lockstep
