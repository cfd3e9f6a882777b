#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/net/socket.h"
#include "base/random.h"
#include "base/seconds.h"
#include "rendezvous/link_acceptor.h"
#include "rendezvous/links.h"
#include "rendezvous/mesh_links.h"
#include "rendezvous/network_interface.h"
#include "rendezvous/probe.h"
#include "rendezvous/process_identity.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/session.h"
#include "rendezvous/whole_number.h"
#include "transport/attempt_time.h"
#include "transport/shm/shm_host.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kLinkCheckInterval{100};
// A link that cannot be made for this long is reported.
constexpr std::chrono::milliseconds kFirstWarning{5000};

std::string wanted_host_id(const std::string& option) {
  if (!option.empty()) return option;
  const char* value = std::getenv("LOCKSTEP_HOST_ID");
  return value != nullptr ? value : "";
}

std::string group_id_of(const std::string& scope, const std::string& session) { return scope + "#" + session; }

// What each rank tells all others before it connects to other hosts.
struct Whereabouts {
  int first_reached = 0;  // the lowest rank that it reached, itself included
  std::string address;    // where it listens for other hosts; empty if it does not
};

std::string format_whereabouts(const Whereabouts& whereabouts) {
  return format(std::vector<std::string>{std::to_string(whereabouts.first_reached), whereabouts.address});
}

Result<Whereabouts> parse_whereabouts(std::string_view bytes) {
  const auto values = parse_values(bytes);
  if (!values.ok()) return values.status();
  if (values->size() != 2) return Status(StatusCode::protocol_error, "a rank's place is malformed");
  const auto rank = parse_whole_number("a rank", values->front(), 0, kMaxWorldSize);
  if (!rank.ok()) return rank.status();
  return Whereabouts{*rank, values->back()};
}

// From an agreed session to a connected mesh.
class MeshBuilder {
 public:
  MeshBuilder(const MeetingPoint& where, const Secret& secret, EncryptionPolicy encryption, const MeshOptions& options,
              Session& session)
      : where_(where), options_(options), session_(session) {
    auto context = std::make_shared<LinkContext>();
    context->secret = secret;
    context->group_id = group_id_of(options.scope, session.id());
    context->members = session.members();
    context->rank = where.rank;
    context->data_streams = options.data_streams;
    context->encryption = encryption;
    context_ = std::move(context);
  }

  Result<Mesh> build(UniqueFd unix_listener) {
    mesh_.group_id = context_->group_id;
    mesh_.control.resize(context_->members.size());
    auto acceptor = LinkAcceptor::start(context_, std::move(unix_listener));
    if (!acceptor.ok()) return acceptor.status();
    LOCKSTEP_RETURN_IF_ERROR(reach_host());
    LOCKSTEP_RETURN_IF_ERROR(agree_on_hosts(**acceptor));
    links_ = std::make_shared<MeshLinks>(context_, mesh_.topology, std::move(addresses_), *std::move(acceptor));
    mesh_.links = links_;
    LOCKSTEP_RETURN_IF_ERROR(connect_control());
    LOCKSTEP_RETURN_IF_ERROR(share_memory());
    return std::move(mesh_);
  }

 private:
  Channel& control(int peer) { return mesh_.control[static_cast<std::size_t>(peer)]; }
  const MemberRecord& member(int rank) const { return context_->members[static_cast<std::size_t>(rank)]; }

  // Connects to the first rank of this host, which the other ranks of it try, too.
  Status reach_host() {
    first_reached_ = context_->rank;
    for (int peer = 0; peer < context_->rank; ++peer) {
      if (!may_share_host(member(peer), session_.self())) continue;
      auto link = make_with_retries([&](auto) { return probe_and_introduce(peer); });
      if (!link.ok()) return link.status();
      if (!link->valid()) continue;
      control(peer) = *std::move(link);
      first_reached_ = peer;
      break;
    }
    return {};
  }

  // No channel if the peer is on another host.
  Result<Channel> probe_and_introduce(int peer) {
    auto fd = probe(member(peer), session_.self(), session_.deadline());
    if (!fd.ok()) return fd.status();
    if (!fd->valid()) return Channel();
    return introduce(*std::move(fd), {peer, kControlRole, 0}, *context_, session_.deadline());
  }

  bool all_may_share_host() const {
    return std::all_of(context_->members.begin(), context_->members.end(),
                       [&](const auto& other) { return may_share_host(other, session_.self()); });
  }

  Status agree_on_hosts(LinkAcceptor& acceptor) {
    Whereabouts mine{first_reached_, {}};
    if (!all_may_share_host()) {
      auto address = listen_for_other_hosts(acceptor);
      if (!address.ok()) return address.status();
      mine.address = *std::move(address);
    }
    const auto values = session_.exchange("place", format_whereabouts(mine));
    if (!values.ok()) return values.status();
    std::vector<int> first_reached;
    for (const auto& value : *values) {
      auto place = parse_whereabouts(value);
      if (!place.ok()) return place.status();
      first_reached.push_back(place->first_reached);
      addresses_.push_back(std::move(place->address));
    }
    set_topology(partition_into_hosts(first_reached));
    for (int peer = 0; peer < mesh_.topology.size(); ++peer) {
      if (peer == context_->rank || mesh_.topology.same_host(peer)) continue;
      control(peer).reset();  // reached, but not the first rank of its host
      acceptor.drop_unix_links_of(peer);
    }
    return mesh_.topology.single_host() ? Status() : complete_addresses(acceptor, mine.address);
  }

  // All ranks could have been on one host, so they did not listen for others; but they are not.
  Status complete_addresses(LinkAcceptor& acceptor, std::string mine) {
    const auto unknown = [](const std::string& address) { return address.empty(); };
    if (std::none_of(addresses_.begin(), addresses_.end(), unknown)) return {};
    if (mine.empty()) {
      auto address = listen_for_other_hosts(acceptor);
      if (!address.ok()) return address.status();
      mine = *std::move(address);
    }
    auto addresses = session_.exchange("address", mine);
    if (!addresses.ok()) return addresses.status();
    addresses_ = *std::move(addresses);
    return {};
  }

  void set_topology(const std::vector<int>& labels) {
    std::vector<Member> members;
    for (const auto& record : context_->members) {
      members.push_back({.rank = record.rank,
                         .host = record.host,
                         .pid = record.pid,
                         .host_index = labels[static_cast<std::size_t>(record.rank)],
                         .local_index = 0,
                         .machine = record.machine,
                         .processors = record.processors});
    }
    mesh_.topology = make_topology(context_->rank, std::move(members));
  }

  Result<std::string> listen_for_other_hosts(LinkAcceptor& acceptor) {
    auto listener = listen_on_network();
    if (!listener.ok()) {
      return listener.status().with_context(
          fmt::format("{} cannot listen for other hosts", session_.self().describe()));
    }
    const auto bound = local_address(listener->get());
    if (!bound.ok()) return bound.status();
    log_encryption();
    acceptor.add_listener(*std::move(listener));
    return bound->to_string();
  }

  Result<UniqueFd> listen_on_network() {
    const std::string wanted = wanted_interface(options_.network_interface);
    bool one_network = !session_.self().network_space.empty();
    for (const auto& record : context_->members) one_network &= record.network_space == session_.self().network_space;
    // Simulated hosts (LOCKSTEP_HOST_ID) use loopback.
    const std::string towards = one_network && where_.master_host.empty() ? "127.0.0.1" : where_.master_host;
    auto address = choose_local_address(wanted, towards);
    // On the master its own name often resolves to loopback (Debian's /etc/hosts), which no other host can reach.
    if (address.ok() && wanted.empty() && !one_network && address->is_loopback())
      address = choose_local_address("", "");
    if (!address.ok()) return address.status();
    LOCKSTEP_RETURN_IF_ERROR(reachable_by_address(*address));
    LOCKSTEP_RETURN_IF_ERROR(may_bind(*address, context_->secret));
    return listen_on(*address);
  }

  // Once per process.
  void log_encryption() const {
    static std::once_flag once;
    std::call_once(once, [this] {
      if (context_->secret.empty()) {
        log_info("links to other hosts are neither authenticated nor encrypted, because the job has no secret");
      } else if (context_->encryption == EncryptionPolicy::all) {
        log_info("links to other hosts are encrypted (TLS 1.3)");
      } else {
        log_info(
            "LOCKSTEP_ENCRYPT=control: links to other hosts are encrypted (TLS 1.3), except for the data of "
            "collectives, which is only authenticated when a link is made");
      }
    });
  }

  Status connect_control() {
    std::vector<LinkName> expected;
    for (const int peer : control_peers(mesh_.topology)) {
      const LinkName name{peer, kControlRole, 0};
      if (peer > context_->rank) {
        expected.push_back(name);
      } else if (!control(peer).valid()) {
        auto link = make_with_retries(
            [&](auto connect_time) { return links_->connect(name, session_.deadline(), connect_time); });
        if (!link.ok()) return link.status();
        control(peer) = *std::move(link);
      }
    }
    return collect_accepted(expected);
  }

  // Retries if there is no answer in time, because the other end may be busy. Between attempts it checks whether the
  // group has failed elsewhere.
  template <typename Make>
  Result<Channel> make_with_retries(const Make& make) {
    AttemptTime connect_time(kConnectTime, kLongestConnectTime);
    auto warn_at = Deadline::Clock::now() + kFirstWarning;
    while (true) {
      auto link = make(connect_time.next());
      if (link.ok()) return link;
      if (link.status().code() != StatusCode::timed_out || session_.deadline().expired()) return link.status();
      if (Deadline::Clock::now() >= warn_at) {
        warn_at = Deadline::Clock::time_point::max();
        log_warn("{}; trying again for {:.0f} s", link.status().message(), seconds(session_.deadline().remaining()));
      }
      LOCKSTEP_RETURN_IF_ERROR(session_.check());
    }
  }

  Status collect_accepted(const std::vector<LinkName>& expected) {
    LinkAcceptor& acceptor = links_->acceptor();
    while (true) {
      const auto slice = session_.deadline().earlier(Deadline::after(kLinkCheckInterval));
      const Status there = acceptor.wait_for(expected, slice);
      if (there.ok()) break;
      if (there.code() != StatusCode::timed_out) return there;
      LOCKSTEP_RETURN_IF_ERROR(session_.check());
      if (session_.deadline().expired()) {
        const auto first = acceptor.missing(expected).front();
        const Status cannot = acceptor.accept_error();
        return Status(StatusCode::timed_out,
                      fmt::format("{} has not connected to {} (link '{}' number {}){}", member(first.peer).describe(),
                                  session_.self().describe(), first.role, first.index,
                                  cannot.ok() ? "" : "; " + cannot.message()));
      }
    }
    for (const auto& name : expected) control(name.peer) = acceptor.take(name);
    return {};
  }

  Status share_memory() {
    std::vector<int> control_fds;
    for (const int rank : mesh_.topology.local_ranks()) control_fds.push_back(control(rank).fd());
    auto host = connect_shm_host(mesh_.topology, control_fds, session_.deadline());
    if (!host.ok()) return host.status();
    mesh_.host = *std::move(host);
    return {};
  }

  const MeetingPoint& where_;
  const MeshOptions& options_;
  Session& session_;
  std::shared_ptr<const LinkContext> context_;
  int first_reached_ = 0;
  std::vector<std::string> addresses_;  // by rank
  std::shared_ptr<MeshLinks> links_;
  Mesh mesh_;
};

Result<Mesh> alone(const std::string& scope, const MemberRecord& self) {
  Mesh mesh;
  mesh.group_id = group_id_of(scope, self.nonce);
  mesh.topology =
      make_topology(0, {{.rank = 0, .host = self.host, .pid = self.pid, .host_index = 0, .local_index = 0}});
  mesh.control.resize(1);
  const int no_socket = -1;
  auto host = connect_shm_host(mesh.topology, std::span(&no_socket, 1), Deadline::after(std::chrono::seconds(5)));
  if (!host.ok()) return host.status();
  mesh.host = *std::move(host);
  return mesh;
}

Result<Mesh> form(const MeetingPoint& where, const Secret& secret, const MeshOptions& options, Deadline deadline) {
  const auto encryption = encryption_from_environment();
  if (!encryption.ok()) return encryption.status();
  const MemberRecord self = claim_rank(where.rank, where.world_size, wanted_host_id(options.host_id));
  if (where.world_size == 1) return alone(options.scope, self);
  auto listener = listen_on(abstract_unix_address(self.unix_name));
  if (!listener.ok()) return listener.status();
  const auto session = Session::join(where.store, options.scope, self, deadline);
  if (!session.ok()) return session.status();
  auto mesh = MeshBuilder(where, secret, *encryption, options, **session).build(*std::move(listener));
  const Status complete = mesh.ok() ? (*session)->complete() : mesh.status();
  if (complete.ok()) return mesh;
  const Status why = (*session)->fail(complete);
  if (mesh.ok() && options.abandon) options.abandon(*mesh, why);
  return why;
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
