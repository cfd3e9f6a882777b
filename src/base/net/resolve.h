// Host names to addresses, with a deadline.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/net/socket.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"

namespace lockstep {

// How long a name server has to answer, if the caller has no deadline that is earlier.
inline constexpr std::chrono::seconds kResolveTime{10};

// All addresses of `host` (a name, IPv4, or IPv6 with or without brackets), in getaddrinfo's order. Unresolvable:
// unavailable, naming host and resolver's reason. timed_out: name servers did not answer by the deadline.
//
// getaddrinfo(3) cannot be interrupted, so names are looked up by a thread; if it does not return in time, it is left
// behind, and later calls for the same name wait for the same thread. Addresses are parsed at once.
Result<std::vector<SocketAddress>> resolve(const std::string& host, std::uint16_t port,
                                           Deadline deadline = Deadline::after(kResolveTime));

// For tests: as resolve(), with another function than getaddrinfo. It must return error codes of getaddrinfo.
using LookUpName = int (*)(const char* name, std::vector<SocketAddress>& addresses);
Result<std::vector<SocketAddress>> resolve_with(LookUpName look_up, const std::string& host, std::uint16_t port,
                                                Deadline deadline);

}  // namespace lockstep
