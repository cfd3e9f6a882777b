// How far each rank of a group has come, as far as this rank knows. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/rank_vector.h"
#include "collectives/descriptor.h"
#include "communicator/control/control_message.h"
#include "transport/topology.h"

namespace lockstep {

class PeerProgress {
 public:
  // `topology` must outlive this.
  explicit PeerProgress(const Topology& topology) : topology_(topology), peers_(topology.size()) {}

  // --- this rank
  // Called by the thread that runs collectives.
  void set_completed(const OpDescriptor& op);
  // The collective that has waited long here, which heartbeats report; or none any more.
  void set_waiting(const std::optional<OpDescriptor>& op);
  Heartbeat heartbeat() const;
  Goodbye goodbye() const;
  // If ranks called different operations: `status` with what this rank called before. Called by the thread that runs
  // collectives.
  Status with_history(const Status& status) const;

  // --- the peers
  void on_heartbeat(int rank, const Heartbeat& heartbeat);
  void on_goodbye(int rank, const Goodbye& goodbye);
  // Its connection has ended, or it is silent.
  void set_gone(int rank);
  bool is_gone(int rank) const;
  bool has_left(int rank) const;

  // Ok if all peers can still reach collective `sequence`; otherwise the error names a rank that has left the group.
  Status expect_all(std::uint64_t sequence) const;
  // Ranks that, as far as is known, have not reached `sequence`.
  std::vector<int> not_yet_at(std::uint64_t sequence) const;
  // Ok unless a peer waits in another operation with the number of `op`; the error names both sides.
  Status compare(const OpDescriptor& op) const;

 private:
  struct Peer {
    std::uint64_t completed = 0;
    std::optional<OpDescriptor> waiting;
    bool left = false;  // sent a goodbye after `completed`
    bool gone = false;
  };

  const Topology& topology_;
  std::atomic<std::uint64_t> completed_{0};  // written by the thread that runs collectives
  // Owned by the thread that runs collectives: the latest operations completed here, each at its number modulo 3.
  std::array<OpDescriptor, 3> history_;

  mutable std::mutex mutex_;
  RankVector<Peer> peers_;               // guarded by mutex_
  std::optional<OpDescriptor> waiting_;  // guarded by mutex_
};

}  // namespace lockstep
