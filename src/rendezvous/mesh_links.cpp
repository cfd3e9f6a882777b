#include "rendezvous/mesh_links.h"

#include <algorithm>
#include <utility>

#include "base/net/resolve.h"
#include "base/net/socket.h"

namespace lockstep {

MeshLinks::MeshLinks(std::shared_ptr<const LinkContext> context, const Topology& topology,
                     std::vector<std::string> addresses, std::unique_ptr<LinkAcceptor> acceptor)
    : context_(std::move(context)),
      single_host_(topology.single_host()),
      addresses_(std::move(addresses)),
      acceptor_(std::move(acceptor)) {
  for (const auto& member : topology.members) host_of_.push_back(member.host_index);
}

int MeshLinks::data_links(int peer) const {
  if (single_host_) return 0;
  const auto host = [this](int rank) { return host_of_[static_cast<std::size_t>(rank)]; };
  return host(peer) == host(context_->rank) ? 1 : context_->data_streams;
}

Result<SocketAddress> MeshLinks::address_of(int peer) const {
  const auto index = static_cast<std::size_t>(peer);
  if (host_of_[index] == host_of_[static_cast<std::size_t>(context_->rank)]) {
    return abstract_unix_address(context_->members[index].unix_name);
  }
  const auto host_port = parse_host_port(addresses_[index]);
  if (!host_port.ok()) return host_port.status();
  auto addresses = resolve(host_port->host, host_port->port);
  if (!addresses.ok()) return addresses.status();
  return addresses->front();
}

Result<Channel> MeshLinks::connect(const LinkName& name, Deadline deadline) {
  const auto half = std::chrono::duration_cast<std::chrono::milliseconds>(deadline.remaining() / 2);
  return connect(name, deadline, std::clamp(half, kConnectTime, kLongestConnectTime));
}

Result<Channel> MeshLinks::connect(const LinkName& name, Deadline deadline, std::chrono::milliseconds connect_time) {
  const auto address = address_of(name.peer);
  if (!address.ok()) return address.status();
  return make_link(*address, name, *context_, deadline, connect_time);
}

}  // namespace lockstep
