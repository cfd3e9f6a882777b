// Where a rank's links to its peers come from. A group connects few of its ranks when it forms (control_peers() in
// transport/topology.h); links for messages and for the data of collectives are made when an operation first needs
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/net/channel.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"

namespace lockstep {

// The purpose of a link; also its role in the handshake.
inline constexpr const char* kControlRole = "control";  // the higher rank connects to the lower one
inline constexpr const char* kMessagesRole = "p2p";     // carries messages from the rank that connects to the other one
inline constexpr const char* kDataRole = "data";        // the higher rank connects to the lower one

// One link between this rank and `peer`: an authenticated channel, over a Unix socket to a rank of this host, and over
// TCP, encrypted, to others.
struct LinkName {
  int peer = 0;
  std::string role;
  std::uint32_t index = 0;
  // clang-tidy mistakes the comparison with 0 inside for a null pointer.
  friend auto operator<=>(const LinkName&, const LinkName&) = default;  // NOLINT(modernize-use-nullptr)
};

// Thread-safe.
class LinkSource {
 public:
  virtual ~LinkSource() = default;

  // Connects to name.peer; blocks until that is done, which needs no more of the peer than that its process runs.
  // timed_out, at the deadline or before: the peer may be tried again, because it is busy, stopped or cannot be reached
  // for now, or because this host lacks descriptors, ports or memory for now. Other errors are final; unavailable: its
  // process has ended.
  virtual Result<Channel> connect(const LinkName& name, Deadline deadline) = 0;

  using Links = std::vector<std::pair<LinkName, Channel>>;
  // The links of this role that peers have connected since the last call.
  virtual Links take_all(const std::string& role) = 0;
  // Called on another thread when a peer has connected a link of this role; must not call the source. After
  // set_listener(role, nullptr) has returned, it is not called any more.
  virtual void set_listener(const std::string& role, std::function<void()> listener) = 0;

  // How many links for data there are between this rank and `peer`.
  virtual int data_links(int peer) const = 0;
};

}  // namespace lockstep
