// Ranks of one host (or of one process) through memory that all of them see.
//
// Which memory that is (memfds passed between processes, or plain memory between threads) is the
// business of shm/ and inproc/; this class and the host algorithms see only pointers.
//
// Threads: announce, arrive and the waits are called by one thread at a time (the one that runs
// the group's current operation). find, resolve, ring_bell and the bookkeeping of segments may be
// called from any thread.
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

#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"
#include "transport/shared_area.h"
#include "transport/wait_scope.h"

namespace lockstep {

// A peer's registered memory as seen here. Valid while `hold` lives, even if the peer frees it.
struct PeerView {
  std::byte* data = nullptr;
  std::shared_ptr<const void> hold = {};
};

// Memory of this or another rank that local ranks map.
struct Segment {
  std::byte* data = nullptr;
  std::size_t size = 0;
  std::shared_ptr<const void> hold = {};
};

class HostTransport {
 public:
  struct Config {
    int local_rank = 0;
    std::vector<int> ranks = {};          // group rank of each local rank
    std::vector<SharedArea*> areas = {};  // by local rank
    std::shared_ptr<void> memory = {};    // keeps the areas mapped
    // All ranks live in this address space: any memory can be used in place by any rank.
    bool one_address_space = false;
  };
  explicit HostTransport(Config config);

  int local_rank() const { return config_.local_rank; }
  int local_size() const { return static_cast<int>(config_.areas.size()); }
  int group_rank(int local) const { return config_.ranks[static_cast<std::size_t>(local)]; }
  SharedArea& area(int local) { return *config_.areas[static_cast<std::size_t>(local)]; }
  // More ranks than processors: waiting means giving way, not spinning.
  bool oversubscribed() const { return oversubscribed_; }

  // Around every operation: between the two, this rank may touch registered memory of the others.
  void enter();
  void leave();
  // After an operation has failed here: sees to it that the others do not touch this rank's memory any
  // more, which its user is free to use again. Takes the announcement back, so that nobody begins to,
  // and waits until those who have begun are outside. `is_gone(rank)`: not to be waited for, because
  // its process has ended or is silent. False at the deadline.
  bool withdraw(const std::function<bool(int)>& is_gone, Deadline deadline);

  // The slot for my next announcement: fill it (all but the ticket), then publish().
  Announcement& next_announcement();
  void publish();
  // Says that the next announcement's payload will have so many bytes: their lines are taken back
  // from the readers' caches side by side, not one after the other.
  void prepare_payload(std::size_t bytes);
  // The announcement of a local rank that belongs to my latest one; after wait_announced().
  const Announcement& announcement(int local) const;
  // Waits until all local ranks have announced.
  Status wait_announced(WaitScope& scope);

  // A synchronisation point inside an operation: everything written before arrive() is visible to
  // every rank after its wait_arrived().
  void arrive();
  Status wait_arrived(WaitScope& scope);

  // Makes those who wait in this host's memory look at their WaitScope again.
  void ring_bell();

  // Registered memory. Segments are numbered by their owner, from 1.
  std::uint32_t add_own_segment(Segment segment);
  void drop_own_segment(std::uint32_t id);
  void add_peer_segment(int local, std::uint32_t id, Segment segment);
  void drop_peer_segment(int local, std::uint32_t id);
  // Where [data, data + bytes) lies in my registered memory; segment 0 if it does not.
  MemoryRef find(const void* data, std::size_t bytes) const;
  // A peer's memory. Waits for its segment if that is still under way to us.
  Result<PeerView> resolve(int local, MemoryRef ref, std::size_t bytes, WaitScope& scope);

 private:
  template <typename Ready>
  Status wait_until(WaitScope& scope, const Ready& ready_peer);
  template <typename Ready>
  bool spin(const WaitScope& scope, Deadline::Duration how_long, const Ready& ready) const;
  template <typename Ready, typename MissingHere>
  bool give_way(const WaitScope& scope, const Ready& ready, const MissingHere& missing_here);
  void signal_arrival();
  void note_processor(int processor);
  void leave_loaded_processor();

  // Constant after construction.
  const Config config_;
  const bool oversubscribed_;
  const std::vector<int> processors_;  // where this rank may run

  // Owned by the thread that runs the current operation.
  std::uint32_t ticket_ = 0;  // of my latest announcement
  std::size_t last_payload_ = 0;
  std::vector<int> where_;  // the processor of each local rank, as last noted
  Deadline::Clock::time_point next_move_{};
  std::uint32_t arrived_ = 0;   // my arrivals
  std::uint32_t expected_ = 0;  // arrivals of all ranks at the latest synchronisation point (wraps)

  // Guarded by segments_mutex_.
  mutable std::mutex segments_mutex_;
  std::condition_variable segment_came_;
  std::uint32_t next_segment_ = 1;
  std::map<const std::byte*, std::uint32_t> own_by_address_;
  std::map<std::uint32_t, Segment> own_;
  std::vector<std::map<std::uint32_t, Segment>> peers_;
};

}  // namespace lockstep
