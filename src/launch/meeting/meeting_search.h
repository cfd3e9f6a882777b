// Finding the coordinator: at the endpoints, or at one of the nodes of the last round. Used by one thread.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/net/socket.h"
#include "launch/meeting/meeting_records.h"
#include "launch/meeting/node_decisions.h"
#include "lockstep/base/secret.h"
#include "lockstep/base/status.h"
#include "store/read_now.h"
#include "store/tcp/tcp_store.h"

namespace lockstep::launch {

// What is at one address.
struct Finding {
  Place place;
  std::string owner = {};                     // the id of the node whose store it is; empty: unknown
  JobState job_state = {};                    // of a candidate or a coordinator
  std::shared_ptr<TcpStore> store = nullptr;  // if a store answered
  Status problem = {};                        // why none answered
};

// Where a node searches for the coordinator that knows this of the job: the nodes of the newest established round, then
// those of the newest round, then those of others that it needs a quorum of. A round that is not established is not
// known to all of its nodes: they would search in different orders.
std::vector<membership::Member> nodes_to_search(const JobState& known);

class MeetingSearch {
 public:
  MeetingSearch(const Secret& secret, std::chrono::milliseconds silent_timeout)
      : secret_(secret), silent_timeout_(silent_timeout) {}

  // Probes one address, for at most `kProbeTimeout`; follows a redirection to the present coordinator.
  Finding probe(const std::string& host, std::uint16_t port);
  Finding probe(const std::string& address);

  struct Outcome {
    PlaceChoice::Kind kind = PlaceChoice::Kind::wait;
    Finding finding = {};  // to join
  };
  // Searches the nodes of the last rounds, as node `self` knows them. `coordinates`: it is a coordinator with a quorum.
  Outcome search_nodes(const JobState& known, const std::string& self, bool coordinates);
  // If there is a coordinator of the same job but of an older term at an endpoint, such as a launcher that was
  // restarted there and does not know the job: writes there that the coordinator of `job_state` is at `address`.
  void redirect(const HostPort& endpoint, const JobState& job_state, const std::string& address);

  static constexpr std::chrono::milliseconds kProbeTimeout{500};

 private:
  Finding probe_once(const std::string& host, std::uint16_t port, std::string* moved);

  const Secret secret_;
  const std::chrono::milliseconds silent_timeout_;
  std::map<std::string, std::chrono::steady_clock::time_point> silent_since_;  // by address
};

}  // namespace lockstep::launch
