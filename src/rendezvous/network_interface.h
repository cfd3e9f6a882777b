// The address of this host on which other hosts reach it.
#pragma once

#include <string>

#include "base/net/socket.h"
#include "lockstep/base/status.h"

namespace lockstep {

// `wanted` is an interface ("eth0") or an address of this host; IPv4 is preferred if an
// interface has both. Empty: the local address from which `towards` (a name or address) is
// reached. Both empty: the first address of an interface that is up and not loopback, else
// loopback. The port is 0. Errors list the existing interfaces.
Result<SocketAddress> choose_local_address(const std::string& wanted, const std::string& towards);

// Whether other hosts can connect to it, as far as the address shows: invalid_argument for an IPv6 address of one link,
// which means nothing without the name of an interface.
Status reachable_by_address(const SocketAddress& address);

// The user's setting for choose_local_address(): `option`, or LOCKSTEP_INTERFACE if that is empty; may be empty.
std::string wanted_interface(const std::string& option = "");

}  // namespace lockstep
