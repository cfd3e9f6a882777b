// The connections between two ranks of a group: which ones exist, and how one is established. The higher rank connects
// to the lower one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/net/auth.h"
#include "base/unique_fd.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"
#include "rendezvous/member_record.h"
#include "transport/mesh.h"
#include "transport/topology.h"

namespace lockstep {

// The purpose of a link; also its role in the handshake.
inline constexpr const char* kControlRole = "control";
inline constexpr const char* kMessagesRole = "p2p";
inline constexpr const char* kDataRole = "data";

// One link between this rank and `peer`.
struct LinkName {
  int peer = 0;
  std::string role;
  std::uint32_t index = 0;
  // clang-tidy mistakes the comparison with 0 inside for a null pointer.
  friend auto operator<=>(const LinkName&, const LinkName&) = default;  // NOLINT(modernize-use-nullptr)
};

// What all links of one rank have in common.
struct LinkContext {
  Secret secret;
  std::string group_id;
  std::vector<MemberRecord> members;  // by rank
  int rank = 0;
  int data_streams = 1;  // between two hosts
};

// How many payload links this rank has with `peer`.
int data_links_with(const Topology& topology, int peer, int data_streams);
// Control, messages and data links with `peer`, as transport/mesh.h describes them.
std::vector<LinkName> links_with(const Topology& topology, int peer, int data_streams);
// Where the link belongs; PeerLinks::data must be large enough.
UniqueFd& place_of(const LinkName& name, PeerLinks& links);

// The connector's last byte of a new link, after the handshake: it has seen that it was accepted, and keeps the
// connection. Without it, the acceptor could use an attempt that the connector has given up.
inline constexpr std::byte kLinkConfirmed{1};

// Runs the handshake of a new connection, which proves its purpose to the rank at the other end, and confirms it.
// Errors name the rank.
Status introduce(int fd, const LinkName& name, const LinkContext& context, Deadline deadline);
// For messages: "connecting to rank 3 (host node7, pid 4711) (link 'data' number 0)".
std::string purpose_of(const LinkName& name, const LinkContext& context);

}  // namespace lockstep
