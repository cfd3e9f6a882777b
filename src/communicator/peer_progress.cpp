#include "communicator/peer_progress.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace lockstep {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
// Earlier operations that the error of a mismatch lists.
constexpr std::uint64_t kListed = 3;

using Words = std::array<std::uint64_t, RankState::kWaitingWords>;

Words pack(const OpDescriptor& op) {
  const auto kind = static_cast<std::uint64_t>(op.kind);
  const auto dtype = static_cast<std::uint64_t>(op.dtype) << 8;
  const auto reduction = static_cast<std::uint64_t>(op.op) << 16;
  const auto root = static_cast<std::uint64_t>(static_cast<std::uint32_t>(op.root)) << 32;
  return {op.sequence, kind | dtype | reduction | root, op.count, op.digest};
}

OpDescriptor unpack(const Words& words) {
  return {.sequence = words[0],
          .kind = static_cast<OperationKind>(words[1] & 0xff),
          .dtype = static_cast<DType>(words[1] >> 8 & 0xff),
          .op = static_cast<ReduceOp>(words[1] >> 16 & 0xff),
          .root = static_cast<std::int32_t>(words[1] >> 32),
          .count = words[2],
          .digest = words[3]};
}

// A sequence lock with one writer: `version` is odd while the words change. Each release pairs with the acquire of the
// same word in read_waiting(): a reader of a new word also sees that the version has changed.
void write_waiting(RankState& state, const std::optional<OpDescriptor>& op, std::uint32_t version) {
  state.version.store(version - 1, kRelaxed);
  const Words words = op ? pack(*op) : Words{};
  for (std::size_t i = 0; i < words.size(); ++i) state.waiting[i].store(words[i], std::memory_order_release);
  state.waits.store(op ? 1 : 0, std::memory_order_release);
  state.version.store(version, std::memory_order_release);
}

struct Waiting {
  std::uint32_t version = 0;
  std::optional<OpDescriptor> op;
};

Waiting read_waiting(const RankState& state) {
  // A writer takes some nanoseconds, unless its process ends meanwhile: then what it wrote does not matter.
  constexpr int kAttempts = 1000;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::uint32_t version = state.version.load(std::memory_order_acquire);
    Words words;
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = state.waiting[i].load(std::memory_order_acquire);
    const bool waits = state.waits.load(std::memory_order_acquire) != 0;
    if (version % 2 != 0 || state.version.load(kRelaxed) != version) continue;
    return {version, waits ? std::optional(unpack(words)) : std::nullopt};
  }
  return {};
}

}  // namespace

void PeerProgress::set_completed(const OpDescriptor& op) {
  mine().completed.store(op.sequence, kRelaxed);  // peers read it to explain errors; nothing depends on it
  history_[op.sequence % history_.size()] = op;
}

void PeerProgress::set_waiting(const std::optional<OpDescriptor>& op) {
  write_waiting(mine(), op, mine().version.load(kRelaxed) + 2);  // this thread wrote it
}

// A rank that only sends, such as the root of a broadcast, continues before the others see what it sent: then
// the mismatch shows in a later operation, and the operation that differed is among the earlier ones.
Status PeerProgress::with_history(const Status& status) const {
  const std::uint64_t completed = mine().completed.load(kRelaxed);  // written by this thread
  if (status.code() != StatusCode::mismatch || completed == 0) return status;
  std::vector<std::string> calls;
  for (std::uint64_t back = std::min(kListed, completed); back > 0; --back) {
    calls.push_back(describe(history_[(completed - back + 1) % history_.size()]));
  }
  return Status(status.code(), fmt::format("{} (before that, rank {} called {})", status.message(), topology_.rank,
                                           fmt::join(calls, ", ")));
}

RankReport PeerProgress::report(int rank) const {
  const auto& state = arena_.state(rank);
  const bool left = state.left.load() != 0;  // before `completed`, which is final then
  const Waiting waiting = read_waiting(state);
  return {.rank = rank,
          .version = waiting.version,
          .completed = state.completed.load(kRelaxed),
          .left = left,
          .waiting = waiting.op};
}

bool PeerProgress::learn(const RankReport& report) {
  if (report.rank < 0 || report.rank >= topology_.size() || topology_.same_host(report.rank)) return false;
  auto& state = arena_.state(report.rank);
  // Reports may overtake each other, but each value only grows.
  const bool further = report.completed > state.completed.load(kRelaxed);
  const bool newer = report.version > state.version.load(kRelaxed) && report.version % 2 == 0;
  const bool leaves = report.left && state.left.load() == 0;
  if (further) state.completed.store(report.completed, kRelaxed);
  if (newer) write_waiting(state, report.waiting, report.version);
  if (leaves) state.left.store(1);
  return further || newer || leaves;
}

bool PeerProgress::any_waits() const {
  for (int rank = 0; rank < topology_.size(); ++rank) {
    if (arena_.state(rank).waits.load(kRelaxed) != 0) return true;  // a hint; nothing depends on it
  }
  return false;
}

Status PeerProgress::expect_all(std::uint64_t sequence) const {
  for (int rank = 0; rank < topology_.size(); ++rank) {
    const auto& state = arena_.state(rank);
    if (state.left.load() == 0) continue;
    const std::uint64_t completed = state.completed.load(kRelaxed);  // written before `left`
    if (completed >= sequence) continue;
    return Status(StatusCode::peer_lost,
                  fmt::format("{} has left the group (its program destroyed it) after operation #{}, but rank {} "
                              "called operation #{}; every rank must issue the same collectives",
                              topology_.member(rank).describe(), completed, topology_.rank, sequence));
  }
  return Status();
}

std::vector<int> PeerProgress::not_yet_at(std::uint64_t sequence) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < topology_.size(); ++rank) {
    if (rank == topology_.rank) continue;
    const RankReport state = report(rank);
    const bool reached = state.completed >= sequence || (state.waiting && state.waiting->sequence >= sequence);
    if (!reached) ranks.push_back(rank);
  }
  return ranks;
}

Status PeerProgress::compare(const OpDescriptor& op) const {
  for (int rank = 0; rank < topology_.size(); ++rank) {
    if (rank == topology_.rank || arena_.state(rank).waits.load(kRelaxed) == 0) continue;  // most do not wait
    const auto theirs = read_waiting(arena_.state(rank)).op;
    if (!theirs) continue;
    const OpDescriptor& completed = history_[theirs->sequence % history_.size()];
    for (const OpDescriptor* mine : {&op, &completed}) {
      if (mine->sequence == theirs->sequence && *mine != *theirs) {
        return mismatch_error(topology_.rank, *mine, rank, *theirs);
      }
    }
  }
  return Status();
}

}  // namespace lockstep
