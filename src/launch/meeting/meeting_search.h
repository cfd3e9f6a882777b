// Finding the meeting: at the endpoints, or with one of the nodes of the last round. Used by one thread.
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
#include "lockstep/store/tcp_store.h"
#include "store/read_now.h"

namespace lockstep::launch {

// What is at one address.
struct Finding {
  Place place;
  JobState hall = {};                         // of a candidate or a meeting
  std::shared_ptr<TcpStore> store = nullptr;  // where somebody answered
  Status problem = {};                        // where nobody did
};

class MeetingSearch {
 public:
  MeetingSearch(const Secret& secret, std::chrono::milliseconds patience) : secret_(secret), patience_(patience) {}

  // Looks at one address, at most for `kLookTime`; goes on where the meeting has moved to.
  Finding look(const std::string& host, std::uint16_t port);
  Finding look(const std::string& address);

  struct Outcome {
    PlaceChoice::Kind kind = PlaceChoice::Kind::wait;
    Finding finding = {};  // to join
  };
  // Among the nodes of the last round, as the node `self` knows it.
  Outcome search_nodes(const JobState& known, const std::string& self);
  // Where a meeting of the same job but of an older term is kept at an endpoint, as by a launcher that was started
  // again there and knows nothing of the job: says there that the meeting `hall` is at `address`.
  void call_home(const HostPort& endpoint, const JobState& hall, const std::string& address);

  static constexpr std::chrono::milliseconds kLookTime{500};

 private:
  Finding look_once(const std::string& host, std::uint16_t port, std::string* moved);

  const Secret secret_;
  const std::chrono::milliseconds patience_;
  std::map<std::string, std::chrono::steady_clock::time_point> silent_since_;  // by address
};

}  // namespace lockstep::launch
