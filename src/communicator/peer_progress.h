// How far each rank of a group has come, as far as this host knows: kept in the host's arena, where every rank writes
// its own state, and the first rank of the host what it hears about ranks of other hosts. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/descriptor.h"
#include "communicator/control/control_message.h"
#include "transport/host_arena.h"
#include "transport/topology.h"

namespace lockstep {

class PeerProgress {
 public:
  // `topology` must outlive this.
  PeerProgress(const Topology& topology, HostArena arena) : topology_(topology), arena_(std::move(arena)) {}

  // --- this rank
  // Called by the thread that runs collectives.
  void set_completed(const OpDescriptor& op);
  // The collective that has waited long here; or none any more. Called by the thread that runs collectives.
  void set_waiting(const std::optional<OpDescriptor>& op);
  // This rank leaves the group.
  void set_left() { mine().left.store(1); }
  // If ranks called different operations: `status` with what this rank called before. Called by the thread that runs
  // collectives.
  Status with_history(const Status& status) const;

  // --- any rank
  RankReport report(int rank) const;
  // News about a rank of another host; false if it is known already. Called by one thread of the host's first rank.
  bool learn(const RankReport& report);
  // Its process has ended, or it is silent.
  void set_gone(int rank) { arena_.state(rank).gone.store(1); }
  bool is_gone(int rank) const { return arena_.state(rank).gone.load() != 0; }
  bool has_left(int rank) const { return arena_.state(rank).left.load() != 0; }
  // Whether any rank waits long.
  bool any_waits() const;

  // Ok if all peers can still reach collective `sequence`; otherwise the error names a rank that has left the group.
  Status expect_all(std::uint64_t sequence) const;
  // Ranks that, as far as is known, have not reached `sequence`.
  std::vector<int> not_yet_at(std::uint64_t sequence) const;
  // Ok unless a peer waits in another operation than this rank called under that number: `op`, or one of the latest
  // that it has completed. The error names both sides. Called by the thread that runs collectives.
  Status compare(const OpDescriptor& op) const;
  Status compare_completed() const { return compare({.sequence = 0}); }

 private:
  RankState& mine() const { return arena_.state(topology_.rank); }

  const Topology& topology_;
  const HostArena arena_;
  // Owned by the thread that runs collectives: the latest operations completed here, each at its number modulo the
  // size.
  std::array<OpDescriptor, 16> history_;
};

}  // namespace lockstep
