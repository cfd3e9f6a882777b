// How one link between two ranks of a group is made (transport/link_source.h names them). All links are made and
// accepted here and in link_acceptor.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "base/net/connect_channel.h"
#include "base/unique_fd.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"
#include "rendezvous/member_record.h"
#include "transport/link_source.h"

namespace lockstep {

// What all links of one rank have in common.
struct LinkContext {
  Secret secret;
  std::string group_id;
  std::vector<MemberRecord> members;  // by rank
  int rank = 0;
  int data_streams = 1;  // between two hosts
  EncryptionPolicy encryption = EncryptionPolicy::all;
};

// The connector's last byte of a new link, after the handshake: it has seen that it was accepted, and keeps the
// connection. Without it, the acceptor could use an attempt that the connector has given up.
inline constexpr std::byte kLinkConfirmed{1};

// The connections that other ranks may make to this one.
std::vector<ConnectionIdentity> links_to(const LinkContext& context);

// Runs the handshake of a new connection, which encrypts it between hosts and proves its purpose to the rank at the
// other end, and confirms it. Errors name the rank; timed_out, after a pause, also if that rank had no room for the
// connection or closed it.
Result<Channel> introduce(UniqueFd fd, const LinkName& name, const LinkContext& context, Deadline deadline);
// How long an attempt may wait for the connection, before the handshake.
inline constexpr std::chrono::milliseconds kConnectTime{500};
inline constexpr std::chrono::milliseconds kLongestConnectTime{4000};

// Connects to `address` and introduces the connection; one attempt. timed_out may come before the deadline: also if the
// rank cannot be reached for now, or if this host lacks descriptors, ports or memory. unavailable: its process has
// ended.
// unauthenticated: another process listens on its Unix socket.
Result<Channel> make_link(const SocketAddress& address, const LinkName& name, const LinkContext& context,
                          Deadline deadline, std::chrono::milliseconds connect_time = kConnectTime);
// For messages: "connecting to rank 3 (host node7, pid 4711) (link 'data' number 0)".
std::string purpose_of(const LinkName& name, const LinkContext& context);

}  // namespace lockstep
