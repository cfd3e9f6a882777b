// Registered memory of the ranks of one host: a rank that needs a peer's region for the first time requests it, and
// gets its descriptor, over the control links. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "base/shared_memory.h"
#include "base/unique_fd.h"
#include "communicator/control/control_plane.h"
#include "lockstep/base/status.h"
#include "transport/host_transport.h"
#include "transport/topology.h"

namespace lockstep {

class RegionExchange {
 public:
  // Sends a message to a rank of this host, perhaps through others.
  using Send = std::function<void(int rank, const ControlMessage& message, Attachment attachment)>;
  // `topology` and `host` must outlive this.
  RegionExchange(const Topology& topology, HostTransport& host, Send send);

  // Makes memory available to the ranks of this host; returns the number of its region.
  std::uint32_t publish(std::shared_ptr<const SharedMemory> memory);
  void withdraw(std::uint32_t id);
  void request(int local, std::uint32_t id);

  // Messages to this rank, on the control thread. An error: the memory cannot be mapped.
  void on_request(const RegionRequest& request);
  Status on_grant(const RegionGrant& grant, UniqueFd fd);
  void on_dropped(const RegionDropped& dropped);

 private:
  struct Published {
    std::shared_ptr<const SharedMemory> memory;
    std::set<int> granted;  // ranks that may have mapped it
  };
  bool is_local(int rank) const { return rank >= 0 && rank < topology_.size() && topology_.same_host(rank); }

  const Topology& topology_;
  HostTransport& host_;
  const Send send_;
  std::mutex mutex_;
  std::map<std::uint32_t, Published> published_;  // guarded by mutex_
};

}  // namespace lockstep
