// The ranks of a group, and which of them share a host. Constant once the group is established.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct Member {
  int rank = 0;
  std::string host;  // human-readable; which ranks share a host is found by probing, not by this name
  std::int64_t pid = 0;
  int host_index = 0;   // index into Topology::hosts
  int local_index = 0;  // index into hosts[host_index]
  // Hosts may be containers of one machine. Empty and 0: unknown.
  std::string machine = {};  // equal for ranks of one machine
  int processors = 0;        // of the machine

  // "rank 3 (host node7, pid 4711)"
  std::string describe() const;
};

struct Topology {
  int rank = 0;                         // mine
  std::vector<Member> members;          // by rank
  std::vector<std::vector<int>> hosts;  // ranks of each host, ascending; hosts in order of their first rank
  // Some machine has more ranks than processors. The same on all ranks.
  bool oversubscribed = false;

  int size() const { return static_cast<int>(members.size()); }
  const Member& member(int r) const { return members[static_cast<std::size_t>(r)]; }
  const Member& me() const { return member(rank); }
  const std::vector<int>& local_ranks() const { return hosts[static_cast<std::size_t>(me().host_index)]; }
  int local_rank() const { return me().local_index; }
  int local_size() const { return static_cast<int>(local_ranks().size()); }
  bool single_host() const { return hosts.size() == 1; }
  bool same_host(int r) const { return member(r).host_index == me().host_index; }
  // The first rank of my host, which watches its other ranks and is connected to other hosts.
  int host_leader() const { return local_ranks().front(); }
  bool leads_host() const { return host_leader() == rank; }
};

// From each member's host_index (any labels that are equal for ranks of one host) fills
// `hosts` and `oversubscribed` and renumbers host_index and local_index as described above.
Topology make_topology(int rank, std::vector<Member> members);

// The ranks with which topology.rank has a control link, ascending; symmetric. Ranks of a host: its first rank with
// each of the others. Hosts: the first ranks of any two, up to kAllHostsLinked hosts; of more hosts, those whose
// distance in the ring of all hosts is a power of two. So news crosses log2(hosts) links at most, and the loss of any
// one host leaves the others connected.
std::vector<int> control_peers(const Topology& topology);
inline constexpr std::size_t kAllHostsLinked = 16;

}  // namespace lockstep
