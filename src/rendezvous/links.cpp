#include "rendezvous/links.h"

#include <fmt/format.h>

namespace lockstep {

int data_links_with(const Topology& topology, int peer, int data_streams) {
  if (topology.single_host()) return 0;
  const bool local = topology.members[static_cast<std::size_t>(peer)].host_index == topology.me().host_index;
  return local ? 1 : data_streams;
}

std::vector<LinkName> links_with(const Topology& topology, int peer, int data_streams) {
  std::vector<LinkName> names{{peer, kControlRole, 0}, {peer, kMessagesRole, 0}};
  const int count = data_links_with(topology, peer, data_streams);
  for (int index = 0; index < count; ++index) names.push_back({peer, kDataRole, static_cast<std::uint32_t>(index)});
  return names;
}

UniqueFd& place_of(const LinkName& name, PeerLinks& links) {
  if (name.role == kControlRole) return links.control;
  if (name.role == kMessagesRole) return links.messages;
  return links.data.at(name.index);
}

Status introduce(int fd, const LinkName& name, const LinkContext& context, Deadline deadline) {
  const ConnectionIdentity identity{.role = name.role,
                                    .group = context.group_id,
                                    .from_rank = context.rank,
                                    .to_rank = name.peer,
                                    .index = name.index};
  Status status = authenticate_as_connector(fd, context.secret, identity, deadline);
  if (status.ok()) status = send_all(fd, std::span(&kLinkConfirmed, 1), deadline);
  return status.ok() ? status : status.with_context(purpose_of(name, context));
}

std::string purpose_of(const LinkName& name, const LinkContext& context) {
  return fmt::format("connecting to {} (link '{}' number {})",
                     context.members[static_cast<std::size_t>(name.peer)].describe(), name.role, name.index);
}

}  // namespace lockstep
