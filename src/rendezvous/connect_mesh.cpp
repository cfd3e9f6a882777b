#include <fmt/format.h>

#include <cstdlib>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/net/socket.h"
#include "base/random.h"
#include "rendezvous/link_acceptor.h"
#include "rendezvous/links.h"
#include "rendezvous/network_interface.h"
#include "rendezvous/probe.h"
#include "rendezvous/process_identity.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/session.h"
#include "transport/shm/shm_host.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kLinkCheckInterval{100};
constexpr std::chrono::milliseconds kConnectAttempt{500};

std::string wanted_host_id(const std::string& option) {
  if (!option.empty()) return option;
  const char* value = std::getenv("LOCKSTEP_HOST_ID");
  return value != nullptr ? value : "";
}

std::string group_id_of(const std::string& scope, const std::string& session) { return scope + "#" + session; }

// From an agreed session to connected links.
class MeshBuilder {
 public:
  MeshBuilder(const MeetingPoint& where, const Secret& secret, const MeshOptions& options, Session& session)
      : where_(where), options_(options), session_(session) {
    context_.secret = secret;
    context_.group_id = group_id_of(options.scope, session.id());
    context_.members = session.members();
    context_.rank = where.rank;
    context_.data_streams = options.data_streams;
  }

  Result<Mesh> build(UniqueFd unix_listener) {
    mesh_.group_id = context_.group_id;
    mesh_.links.resize(context_.members.size());
    const auto acceptor = LinkAcceptor::start(context_, std::move(unix_listener));
    if (!acceptor.ok()) return acceptor.status();
    LOCKSTEP_RETURN_IF_ERROR(probe_lower_ranks());
    LOCKSTEP_RETURN_IF_ERROR(agree_on_hosts(**acceptor));
    if (!mesh_.topology.single_host()) LOCKSTEP_RETURN_IF_ERROR(connect_hosts(**acceptor));
    LOCKSTEP_RETURN_IF_ERROR(collect_accepted(**acceptor));
    LOCKSTEP_RETURN_IF_ERROR(share_memory());
    return std::move(mesh_);
  }

 private:
  PeerLinks& links(int peer) { return mesh_.links[static_cast<std::size_t>(peer)]; }
  const MemberRecord& member(int rank) const { return context_.members[static_cast<std::size_t>(rank)]; }
  bool is_local(int peer) const {
    return mesh_.topology.members[static_cast<std::size_t>(peer)].host_index == mesh_.topology.me().host_index;
  }

  // Neighbours first, so that not all ranks connect to rank 0 at once.
  Status probe_lower_ranks() {
    for (int peer = context_.rank - 1; peer >= 0; --peer) {
      const auto found = probe(member(peer), session_.self(), session_.deadline());
      if (!found.ok()) return found.status();
      if (!*found) continue;
      const auto address = abstract_unix_address(member(peer).unix_name);
      for (const char* role : {kControlRole, kMessagesRole}) {
        const LinkName name{peer, role, 0};
        auto fd = connect_with_retries(address, name);
        if (!fd.ok()) return fd.status();
        place_of(name, links(peer)) = *std::move(fd);
      }
      reached_.push_back(peer);
    }
    return {};
  }

  Status agree_on_hosts(LinkAcceptor& acceptor) {
    const auto values = session_.exchange("reached", format(reached_));
    if (!values.ok()) return values.status();
    std::vector<std::vector<int>> reached;
    for (const auto& value : *values) {
      auto ranks = parse_ranks(value);
      if (!ranks.ok()) return ranks.status();
      reached.emplace_back(ranks->begin(), ranks->end());
    }
    const auto labels = partition_into_hosts(reached);
    std::vector<Member> members;
    for (const auto& record : context_.members) {
      members.push_back({.rank = record.rank,
                         .host = record.host,
                         .pid = record.pid,
                         .host_index = labels[static_cast<std::size_t>(record.rank)],
                         .local_index = 0,
                         .machine = record.machine,
                         .processors = record.processors});
    }
    mesh_.topology = make_topology(context_.rank, std::move(members));
    for (int peer = 0; peer < mesh_.topology.size(); ++peer) {
      if (peer == context_.rank) continue;
      links(peer).data.resize(static_cast<std::size_t>(data_links_with(mesh_.topology, peer, context_.data_streams)));
      if (is_local(peer)) continue;
      // Reached, but not by all ranks of the peer's host: TCP replaces the probe's connection.
      links(peer).control.reset();
      links(peer).messages.reset();
      acceptor.drop_links_of(peer);
    }
    return {};
  }

  Result<SocketAddress> listen_for_other_hosts(LinkAcceptor& acceptor) {
    const std::string wanted = wanted_interface(options_.network_interface);
    bool one_network = !session_.self().network_space.empty();
    for (const auto& record : context_.members) one_network &= record.network_space == session_.self().network_space;
    // Simulated hosts (LOCKSTEP_HOST_ID) use loopback.
    const std::string towards = one_network && where_.master_host.empty() ? "127.0.0.1" : where_.master_host;
    auto address = choose_local_address(wanted, towards);
    // On the master its own name often resolves to loopback (Debian's /etc/hosts), which no other host can reach.
    if (address.ok() && wanted.empty() && !one_network && address->is_loopback())
      address = choose_local_address("", "");
    if (!address.ok()) return address.status();
    LOCKSTEP_RETURN_IF_ERROR(may_bind(*address, context_.secret));
    auto listener = listen_on(*address);
    if (!listener.ok()) return listener.status();
    auto bound = local_address(listener->get());
    acceptor.add_listener(*std::move(listener));
    return bound;
  }

  Status connect_hosts(LinkAcceptor& acceptor) {
    const auto own = listen_for_other_hosts(acceptor);
    if (!own.ok()) {
      return own.status().with_context(fmt::format("{} cannot listen for other hosts", session_.self().describe()));
    }
    const auto addresses = session_.exchange("address", own->to_string());
    if (!addresses.ok()) return addresses.status();
    for (int peer = context_.rank - 1; peer >= 0; --peer) {
      auto address = address_of(peer, (*addresses)[static_cast<std::size_t>(peer)]);
      if (!address.ok()) return address.status();
      for (const auto& name : links_with(mesh_.topology, peer, context_.data_streams)) {
        auto& place = place_of(name, links(peer));
        if (place.valid()) continue;  // made by the probe
        auto fd = connect_with_retries(*address, name);
        if (!fd.ok()) return fd.status();
        place = *std::move(fd);
      }
    }
    return {};
  }

  // Connects and runs the handshake; retries if there is no answer in time, because the other end may be busy. Between
  // attempts it checks whether the group has failed elsewhere.
  Result<UniqueFd> connect_with_retries(const SocketAddress& address, const LinkName& name) {
    while (true) {
      auto fd = connect_to(address, session_.deadline().earlier(Deadline::after(kConnectAttempt)));
      const Status status = fd.ok() ? introduce(fd->get(), name, context_, session_.deadline())
                                    : fd.status().with_context(purpose_of(name, context_));
      if (status.ok()) return fd;
      if (status.code() != StatusCode::timed_out || session_.deadline().expired()) return status;
      LOCKSTEP_RETURN_IF_ERROR(session_.check());
    }
  }

  Result<SocketAddress> address_of(int peer, const std::string& text) const {
    if (is_local(peer)) return abstract_unix_address(member(peer).unix_name);
    const auto host_port = parse_host_port(text);
    if (!host_port.ok()) return host_port.status();
    auto addresses = resolve(host_port->host, host_port->port);
    if (!addresses.ok()) return addresses.status();
    return addresses->front();
  }

  Status collect_accepted(LinkAcceptor& acceptor) {
    std::vector<LinkName> expected;
    for (int peer = context_.rank + 1; peer < mesh_.topology.size(); ++peer) {
      const auto names = links_with(mesh_.topology, peer, context_.data_streams);
      expected.insert(expected.end(), names.begin(), names.end());
    }
    while (true) {
      const auto slice = session_.deadline().earlier(Deadline::after(kLinkCheckInterval));
      const Status there = acceptor.wait_for(expected, slice);
      if (there.ok()) break;
      if (there.code() != StatusCode::timed_out) return there;
      LOCKSTEP_RETURN_IF_ERROR(session_.check());
      if (session_.deadline().expired()) {
        const auto first = acceptor.missing(expected).front();
        return Status(StatusCode::timed_out,
                      fmt::format("{} has not connected to {} (link '{}' number {})", member(first.peer).describe(),
                                  session_.self().describe(), first.role, first.index));
      }
    }
    for (const auto& name : expected) place_of(name, links(name.peer)) = acceptor.take(name);
    return {};
  }

  Status share_memory() {
    std::vector<int> control_fds;
    for (const int rank : mesh_.topology.local_ranks()) control_fds.push_back(links(rank).control.get());
    auto host = connect_shm_host(mesh_.topology, control_fds, session_.deadline());
    if (!host.ok()) return host.status();
    mesh_.host = *std::move(host);
    return {};
  }

  const MeetingPoint& where_;
  const MeshOptions& options_;
  Session& session_;
  LinkContext context_;
  Mesh mesh_;
  std::vector<std::int32_t> reached_;
};

Result<Mesh> alone(const std::string& scope, const MemberRecord& self) {
  Mesh mesh;
  mesh.group_id = group_id_of(scope, self.nonce);
  mesh.topology =
      make_topology(0, {{.rank = 0, .host = self.host, .pid = self.pid, .host_index = 0, .local_index = 0}});
  mesh.links.resize(1);
  const int no_socket = -1;
  auto host = connect_shm_host(mesh.topology, std::span(&no_socket, 1), Deadline::after(std::chrono::seconds(5)));
  if (!host.ok()) return host.status();
  mesh.host = *std::move(host);
  return mesh;
}

Result<Mesh> form(const MeetingPoint& where, const Secret& secret, const MeshOptions& options, Deadline deadline) {
  const MemberRecord self = claim_rank(where.rank, where.world_size, wanted_host_id(options.host_id));
  if (where.world_size == 1) return alone(options.scope, self);
  auto listener = listen_on(abstract_unix_address(self.unix_name));
  if (!listener.ok()) return listener.status();
  const auto session = Session::join(where.store, options.scope, self, deadline);
  if (!session.ok()) return session.status();
  auto mesh = MeshBuilder(where, secret, options, **session).build(*std::move(listener));
  const Status complete = mesh.ok() ? (*session)->complete() : mesh.status();
  if (!complete.ok()) return (*session)->fail(complete);
  return mesh;
}

Status check_arguments(const MeetingPoint& where, const MeshOptions& options) {
  constexpr std::size_t kMaxScopeBytes = 400;
  if (where.rank < 0 || where.rank >= where.world_size) {
    return Status(StatusCode::invalid_argument,
                  fmt::format("rank {} is not below world size {}", where.rank, where.world_size));
  }
  if (options.data_streams < 1) {
    return Status(StatusCode::invalid_argument,
                  fmt::format("data_streams is {}; expected at least 1", options.data_streams));
  }
  if (options.scope.size() > kMaxScopeBytes) {
    return Status(StatusCode::invalid_argument,
                  fmt::format("the scope has {} bytes; at most {} are allowed", options.scope.size(), kMaxScopeBytes));
  }
  return {};
}

}  // namespace

Result<Mesh> connect_mesh(const MeetingPoint& where, const Secret& secret, const MeshOptions& options,
                          Deadline deadline) {
  LOCKSTEP_RETURN_IF_ERROR(check_arguments(where, options));
  auto mesh = form(where, secret, options, deadline);
  if (mesh.ok()) return mesh;
  return mesh.status().with_context(fmt::format("group '{}' was not formed", options.scope));
}

}  // namespace lockstep
