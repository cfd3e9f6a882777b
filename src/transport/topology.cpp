#include "transport/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace lockstep {
namespace {

bool is_oversubscribed(const std::vector<Member>& members) {
  std::map<std::string, int> ranks_of;
  for (const Member& member : members) ++ranks_of[member.machine];
  return std::any_of(members.begin(), members.end(), [&](const Member& member) {
    return !member.machine.empty() && member.processors > 0 && ranks_of[member.machine] > member.processors;
  });
}

}  // namespace

std::string Member::describe() const { return fmt::format("rank {} (host {}, pid {})", rank, host, pid); }

Topology make_topology(int rank, std::vector<Member> members) {
  Topology topology;
  topology.rank = rank;
  std::map<int, int> index_of_label;
  for (auto& member : members) {
    const auto [entry, is_new] = index_of_label.try_emplace(member.host_index, static_cast<int>(topology.hosts.size()));
    if (is_new) topology.hosts.emplace_back();
    auto& ranks = topology.hosts[static_cast<std::size_t>(entry->second)];
    member.host_index = entry->second;
    member.local_index = static_cast<int>(ranks.size());
    ranks.push_back(member.rank);
  }
  topology.oversubscribed = is_oversubscribed(members);
  topology.members = std::move(members);
  return topology;
}

std::vector<int> control_peers(const Topology& topology) {
  if (!topology.leads_host()) return {topology.host_leader()};
  std::set<int> peers(topology.local_ranks().begin() + 1, topology.local_ranks().end());
  const std::size_t hosts = topology.hosts.size();
  const auto mine = static_cast<std::size_t>(topology.me().host_index);
  for (std::size_t distance = 1; distance < hosts; distance = hosts <= kAllHostsLinked ? distance + 1 : distance * 2) {
    peers.insert(topology.hosts[(mine + distance) % hosts].front());
    peers.insert(topology.hosts[(mine + hosts - distance) % hosts].front());
  }
  return {peers.begin(), peers.end()};
}

}  // namespace lockstep
