// The coordination of several nodes, each with one `lockstep run`, in a store.
//
// Every launcher opens a store (endpoint.h). One node is the *coordinator*: the launcher at the endpoint, and when it
// is lost the first living node of the last round, in its own store. Each node writes everything about itself under one
// key there, and follows the *job state* that the coordinator publishes; so after the loss of the coordinator every
// node writes the same again into the next one's store. A node whose connection its kernel closed is lost within two
// ticks, a silent one after `silent_timeout`. The next round needs a quorum of the last one's nodes
// (membership/succession.h). A node does not count if its guard attests its end (membership/attester.h). A round begins
// when all of its nodes have accepted it.
//
// Threads: the caller's, and one that owns the connection and does all waiting for the network; they share a
// NodeView under a mutex. The caller waits only in next_round(), until its deadline, in count_restart(), for at
// most three times `silent_timeout`, and in the destructor, for at most `linger`.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/net/socket.h"
#include "launch/meeting/node_decisions.h"
#include "launch/meeting/node_meeting.h"
#include "lockstep/base/secret.h"

namespace lockstep::launch {

struct StoreMeetingOptions {
  std::vector<HostPort> endpoints;  // at least one; port 0 only if this host serves it
  std::string local_address = {};   // interface or address of this host for its own store; empty: automatic
  JobConfig job = {};
  NodeRecord self = {};     // without address, rank_port and attester, which open() sets
  std::string roster = {};  // where this node writes the rounds that it accepts (membership/roster.h); empty: nowhere
  // Opens the attester of this node on an address of this host and returns "host:port"; null: nothing attests its end.
  std::function<Result<std::string>(const std::string& host)> open_attester = nullptr;
  Secret secret = {};
  std::string witness = {};                             // "host:port" (membership/witness.h); empty: none
  std::chrono::milliseconds last_call_timeout{30'000};  // how long to wait for more nodes once MIN are present
  std::chrono::milliseconds silent_timeout{10'000};     // a node or coordinator that is silent this long is lost
  std::chrono::milliseconds tick{50};                   // how often the store is read
  std::chrono::milliseconds linger{5'000};  // how long the coordinator stays so that others can read the end
};

class StoreMeeting final : public NodeMeeting {
 public:
  // Opens this node's store; next_round() waits for the other nodes. May block in the resolver.
  // unavailable, unauthenticated, invalid_argument: see open_own_store().
  static Result<std::unique_ptr<StoreMeeting>> open(StoreMeetingOptions options);
  // Announces that this node leaves; the others do not consider it lost if it has finished.
  ~StoreMeeting() override;

  Result<Round> next_round(Deadline deadline, bool (*stop_requested)()) override;
  Status report_failure(const RankFailure& failure) override;
  Status report_finished() override;
  MeetingEvent poll() override;
  // Without --elastic every node that sees a failure may call this: one restart is counted per round.
  Result<int> count_restart() override;
  void end_job(const std::string& reason) override;
  Status publish_roster(const std::string& roster) override;
  std::optional<std::string> newest_roster() override;

  // Where this node's own store is, "host:port".
  std::string address() const;

 private:
  class Impl;
  explicit StoreMeeting(std::unique_ptr<Impl> impl);
  std::string progress() const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::launch
