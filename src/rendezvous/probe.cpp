#include "rendezvous/probe.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/log.h"
#include "base/net/socket.h"

namespace lockstep {

Result<bool> probe(const MemberRecord& peer, const MemberRecord& self, Deadline deadline) {
  if (peer.host_id != self.host_id) return false;
  const auto fd = connect_to(abstract_unix_address(peer.unix_name), deadline);
  if (!fd.ok()) {
    if (fd.status().code() == StatusCode::unavailable) return false;
    return fd.status();
  }
  if (const Status same = check_credentials(fd->get(), peer, self); !same.ok()) {
    log_info("{} counts as on another host: {}", peer.describe(), same.message());
    return false;
  }
  return true;
}

Status check_credentials(int unix_fd, const MemberRecord& peer, const MemberRecord& self) {
  const auto credentials = peer_credentials(unix_fd);
  if (!credentials.ok()) return credentials.status();
  if (credentials->uid != ::geteuid()) {
    return Status(StatusCode::unauthenticated,
                  fmt::format("its process belongs to user {}, this one to user {}", credentials->uid, ::geteuid()));
  }
  const bool comparable = !self.process_space.empty() && self.process_space == peer.process_space;
  if (comparable && credentials->pid != peer.pid) {
    return Status(StatusCode::unauthenticated,
                  fmt::format("the process has pid {}, but {} was announced", credentials->pid, peer.describe()));
  }
  return {};
}

std::vector<int> partition_into_hosts(const std::vector<std::vector<int>>& reached) {
  std::vector<std::vector<int>> hosts;
  std::vector<int> labels;
  for (std::size_t rank = 0; rank < reached.size(); ++rank) {
    const std::set<int> reachable(reached[rank].begin(), reached[rank].end());
    const auto host = std::find_if(hosts.begin(), hosts.end(), [&](const std::vector<int>& ranks) {
      return std::all_of(ranks.begin(), ranks.end(), [&](int other) { return reachable.contains(other); });
    });
    labels.push_back(static_cast<int>(host - hosts.begin()));
    if (host == hosts.end()) {
      hosts.push_back({static_cast<int>(rank)});
    } else {
      host->push_back(static_cast<int>(rank));
    }
  }
  return labels;
}

}  // namespace lockstep
