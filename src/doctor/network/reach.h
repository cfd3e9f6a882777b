// How an address responds to an attempt to connect, as precisely as TCP reveals it.
#pragma once

#include <cstdint>
#include <string>

#include "base/net/socket.h"
#include "lockstep/base/deadline.h"

namespace lockstep::doctor {

enum class Reach : std::uint8_t {
  answered,
  refused,      // answered with RST: no process is listening there, or a firewall rejects
  reset,        // accepted, and then closed or reset before it was used
  unreachable,  // no route, or a router or firewall answered that it cannot be reached
  dropped,      // no answer at all: a firewall drops packets, or the host or its link is down
  no_secret,    // answered, but has another secret, or is not Lockstep
  unknown,      // not tried: its address is not known
};
// "answers", "refused", ...; never null.
const char* to_string(Reach reach);
// What to do about it, for an attempt to connect to `address`; `is_running`: its process is known to run.
std::string advice_for(Reach reach, const std::string& address, bool is_running);

struct Attempt {
  Reach reach = Reach::unknown;
  UniqueFd fd = {};  // connected, if it answered
};
// One attempt; no answer by the deadline is `dropped`.
Attempt attempt_to_connect(const SocketAddress& address, Deadline deadline);

}  // namespace lockstep::doctor
