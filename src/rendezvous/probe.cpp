#include "rendezvous/probe.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/log.h"
#include "base/net/socket.h"

namespace lockstep {

bool may_share_host(const MemberRecord& peer, const MemberRecord& self) {
  if (peer.host_id != self.host_id) return false;
  return peer.network_space.empty() || self.network_space.empty() || peer.network_space == self.network_space;
}

Result<UniqueFd> probe(const MemberRecord& peer, const MemberRecord& self, Deadline deadline) {
  if (!may_share_host(peer, self)) return UniqueFd();
  auto fd = connect_to(abstract_unix_address(peer.unix_name), deadline);
  if (!fd.ok()) {
    if (fd.status().code() == StatusCode::unavailable) return UniqueFd();
    return fd.status();
  }
  if (const Status same = check_credentials(fd->get(), peer, self); !same.ok()) {
    log_info("{} counts as on another host: {}", peer.describe(), same.message());
    return UniqueFd();
  }
  return fd;
}

namespace {

Status check_user(const PeerCredentials& credentials) {
  if (credentials.uid == ::geteuid()) return {};
  return Status(StatusCode::unauthenticated,
                fmt::format("its process belongs to user {}, this one to user {}", credentials.uid, ::geteuid()));
}

}  // namespace

Status check_user(int unix_fd) {
  const auto credentials = peer_credentials(unix_fd);
  return credentials.ok() ? check_user(*credentials) : credentials.status();
}

Status check_credentials(int unix_fd, const MemberRecord& peer, const MemberRecord& self) {
  const auto credentials = peer_credentials(unix_fd);
  if (!credentials.ok()) return credentials.status();
  LOCKSTEP_RETURN_IF_ERROR(check_user(*credentials));
  const bool comparable = !self.process_space.empty() && self.process_space == peer.process_space;
  if (comparable && credentials->pid != peer.pid) {
    return Status(StatusCode::unauthenticated,
                  fmt::format("the process has pid {}, but {} was announced", credentials->pid, peer.describe()));
  }
  return {};
}

std::vector<int> partition_into_hosts(const std::vector<int>& first_reached) {
  std::vector<int> labels;
  for (std::size_t rank = 0; rank < first_reached.size(); ++rank) {
    const int first = first_reached[rank];
    const bool known = first >= 0 && first <= static_cast<int>(rank);
    const bool leads = known && first_reached[static_cast<std::size_t>(first)] == first;
    labels.push_back(leads ? first : static_cast<int>(rank));
  }
  return labels;
}

}  // namespace lockstep
