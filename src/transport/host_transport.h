// Communication between ranks of one host (or of one process) through memory that all of them map.
//
// shm/ and inproc/ provide the memory (a memfd passed between processes, or memory of one process); this class and the
// host algorithms use only pointers.
//
// Threads: announce, arrive and the waits are called by one thread at a time (the one that runs
// the group's current operation). find, resolve, ring_bell and the functions that add and drop regions
// may be called from any thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/rank_vector.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"
#include "transport/host_arena.h"
#include "transport/wait_scope.h"

namespace lockstep {

// A peer's registered memory, as mapped here. Valid while `hold` lives, even if the peer frees it.
struct PeerView {
  std::byte* data = nullptr;
  std::shared_ptr<const void> hold = {};
};

// Registered memory of this or another rank, which all local ranks map.
struct Region {
  std::byte* data = nullptr;
  std::size_t size = 0;
  std::shared_ptr<const void> hold = {};
};

class HostTransport {
 public:
  struct Config {
    int local_rank = 0;
    std::vector<int> ranks = {};  // group rank of each local rank
    HostArena arena = {};
    // Other ranks of the machine, which count as other hosts, need the processors too. The same on all ranks.
    bool busy_machine = false;
    // All ranks are in this address space: any memory can be used in place by any rank.
    bool one_address_space = false;
  };
  explicit HostTransport(Config config);

  int local_rank() const { return config_.local_rank; }
  int local_size() const { return static_cast<int>(config_.ranks.size()); }
  int group_rank(int local) const { return config_.ranks[static_cast<std::size_t>(local)]; }
  const HostArena& arena() const { return config_.arena; }
  std::byte* staging(int local) const { return config_.arena.staging(local); }
  // More ranks than processors: waiting ranks yield instead of spinning.
  bool oversubscribed() const { return oversubscribed_; }

  // Around every operation: between the two, this rank may access registered memory of the others.
  void enter();
  void leave();
  // After an operation has failed here: ensures that other ranks no longer access this rank's memory,
  // so that its user may use it again. Withdraws the announcement, so that no rank starts to access it,
  // and waits until the ranks that have started are outside. Does not wait for a rank for which `is_gone(rank)`
  // is true, because its process has ended or is silent. False at the deadline.
  bool withdraw(const std::function<bool(int)>& is_gone, Deadline deadline);

  // The slot for my next announcement: fill it (all but the ticket), then publish().
  Announcement& next_announcement();
  // Where its payload goes, if that does not fit into it.
  std::byte* next_payload();
  void publish();
  // The next announcement's payload will have this many bytes: prefetches their cache lines from the
  // readers' caches in parallel, not one after the other.
  void prepare_payload(std::size_t bytes);
  // The announcement of a local rank for the operation of my latest one, and its payload; after wait_announced().
  const Announcement& announcement(int local) const;
  const std::byte* payload(int local) const;
  // Waits until all local ranks have announced.
  Status wait_announced(WaitScope& scope);

  // A synchronisation point inside an operation: everything written before arrive() is visible to
  // every rank after its wait_arrived().
  void arrive();
  Status wait_arrived(WaitScope& scope);

  // Wakes the ranks of this host that wait here, so that they check their WaitScope again.
  void ring_bell();

  // Registered memory. Regions are numbered by their owner, from 1.
  std::uint32_t add_own_region(Region region);
  void drop_own_region(std::uint32_t id);
  void add_peer_region(int local, std::uint32_t id, Region region);
  void drop_peer_region(int local, std::uint32_t id);
  // Where [data, data + bytes) is in my registered memory; region 0 if it is not in it.
  MemoryRef find(const void* data, std::size_t bytes) const;
  // Called by resolve() for a region that is not mapped here; it must lead to add_peer_region(). Set before the first
  // operation.
  using RegionRequest = std::function<void(int local, std::uint32_t id)>;
  void set_region_request(RegionRequest request) { request_region_ = std::move(request); }
  // A peer's memory. If its region is not mapped here yet, requests it, and waits until it is, or until the scope ends
  // the wait.
  Result<PeerView> resolve(int local, MemoryRef ref, std::size_t bytes, WaitScope& scope);

 private:
  template <typename Ready>
  Status wait_until(WaitScope& scope, const Ready& ready_peer);
  template <typename Ready>
  bool spin(const WaitScope& scope, Deadline::Duration how_long, const Ready& ready) const;
  template <typename Ready, typename MissingHere>
  bool yield(const WaitScope& scope, const Ready& ready, const MissingHere& missing_here);
  void signal_arrival();
  void note_processor(int processor);
  void leave_oversubscribed_processor();
  SharedArea& area(int local) const { return config_.arena.area(local); }

  // Constant after construction.
  const Config config_;
  const bool oversubscribed_;
  const std::vector<int> processors_;  // where this rank may run
  RegionRequest request_region_;

  // Owned by the thread that runs the current operation.
  std::uint32_t ticket_ = 0;  // of my latest announcement
  std::size_t last_payload_ = 0;
  std::vector<int> processor_of_;  // each local rank, as last noted
  Deadline::Clock::time_point next_move_{};
  std::uint32_t arrived_ = 0;   // my arrivals
  std::uint32_t expected_ = 0;  // arrivals of all ranks at the latest synchronisation point (wraps)

  // Guarded by regions_mutex_.
  mutable std::mutex regions_mutex_;
  std::condition_variable region_added_;
  std::uint32_t next_region_ = 1;
  std::map<const std::byte*, std::uint32_t> own_by_address_;
  std::map<std::uint32_t, Region> own_;
  RankVector<std::map<std::uint32_t, Region>> peers_;  // by local rank
};

}  // namespace lockstep
