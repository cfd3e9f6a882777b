// The NodeMeeting of a job with one node.
#pragma once

#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "launch/meeting/node_meeting.h"
#include "lockstep/base/secret.h"
#include "store/tcp/tcp_store_server.h"

namespace lockstep::launch {

struct LocalMeetingOptions {
  NodeRecord self;
  std::string host = "127.0.0.1";  // an address of this machine
  std::uint16_t port = 0;          // 0: any
  // True: a new store for each round, so that it contains no keys of an earlier one. False: rank 0 serves its own
  // store, and the port is only reserved for it (rank_port.h).
  bool serve_store = true;
  Secret secret = {};
};

class LocalMeeting final : public NodeMeeting {
 public:
  // already_exists: the port is in use. invalid_argument: not an address of this machine.
  static Result<std::unique_ptr<NodeMeeting>> open(LocalMeetingOptions options);

  // Never waits.
  Result<Round> next_round(Deadline deadline, bool (*stop_requested)()) override;
  Status report_failure(const RankFailure&) override { return {}; }
  Status report_finished() override { return {}; }
  MeetingEvent poll() override { return {}; }
  Result<int> count_restart() override { return ++restarts_; }
  void end_job(const std::string&) override {}
  Status publish_roster(const std::string& roster) override;
  std::optional<std::string> newest_roster() override { return roster_; }

 private:
  explicit LocalMeeting(LocalMeetingOptions options) : options_(std::move(options)) {}
  Status open_port();

  LocalMeetingOptions options_;
  std::unique_ptr<TcpStoreServer> server_;
  UniqueFd reserved_;
  int rounds_ = 0;
  int restarts_ = 0;
  std::optional<std::string> roster_;
};

}  // namespace lockstep::launch
