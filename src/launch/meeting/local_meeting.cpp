#include "launch/meeting/local_meeting.h"

#include "launch/process/rank_port.h"

namespace lockstep::launch {
Result<std::unique_ptr<NodeMeeting>> LocalMeeting::open(LocalMeetingOptions options) {
  std::unique_ptr<LocalMeeting> meeting(new LocalMeeting(std::move(options)));
  LOCKSTEP_RETURN_IF_ERROR(meeting->open_port());
  return std::unique_ptr<NodeMeeting>(std::move(meeting));
}

Status LocalMeeting::open_port() {
  if (!options_.serve_store) {
    auto reservation = reserve_rank_port(options_.host, options_.port);
    if (!reservation.ok()) return reservation.status();
    reserved_ = std::move(reservation->fd);
    options_.port = reservation->port;
    return {};
  }
  server_.reset();
  auto server = TcpStoreServer::start({.host = options_.host,
                                       .port = options_.port,
                                       .listening_fd = -1,
                                       .secret = options_.secret,
                                       .limits = {},
                                       .handshake_timeout = std::chrono::milliseconds(5000)});
  if (!server.ok()) return server.status();
  server_ = *std::move(server);
  options_.port = server_->port();  // the next round's, too
  return {};
}

Result<Round> LocalMeeting::next_round(Deadline, bool (*)()) {
  if (rounds_ > 0 && options_.serve_store) LOCKSTEP_RETURN_IF_ERROR(open_port());
  return Round{.number = rounds_++,
               .restarts = restarts_,
               .node_rank = 0,
               .first_rank = 0,
               .world_size = options_.self.nproc,
               .master_addr = options_.host,
               .master_port = options_.port,
               .nodes = {options_.self}};
}

Status LocalMeeting::publish_roster(const std::string& roster) {
  roster_ = roster;
  return {};
}

}  // namespace lockstep::launch
