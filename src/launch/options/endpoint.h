// Where nodes meet (--rdzv-endpoint host:port[,host:port...]), and the store that every launcher opens: at the endpoint
// if that is an address of this host, otherwise a standby in case the endpoint's node is lost.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/net/socket.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/secret.h"
#include "lockstep/base/status.h"
#include "store/tcp/tcp_store_server.h"

namespace lockstep::launch {

// One or more, separated by commas; `default_port` if a port is missing. invalid_argument names the invalid one.
Result<std::vector<HostPort>> parse_endpoints(const std::string& text, std::uint16_t default_port);

struct OwnStore {
  std::unique_ptr<TcpStoreServer> server;
  std::string address;  // "host:port", numeric
  int endpoint = -1;    // which of the endpoints it is; -1: a standby
};

// Binds the first endpoint that is an address of this host and free (port 0: any). A name that this host resolves
// to loopback, as Debian does with the host's own name, is bound on the address of an interface, because others must
// reach it. Otherwise opens a standby on the address from which the first endpoint is reached, at the endpoint's port
// if that is free. `local_address`: an interface or address to use instead; empty: automatic. May block in the
// resolver. unavailable: no endpoint can be resolved. unauthenticated: not loopback, and there is no secret.
Result<OwnStore> open_own_store(const std::vector<HostPort>& endpoints, const std::string& local_address,
                                const Secret& secret);
// Opens the store at an endpoint of this host if that is free now; an error otherwise.
Result<OwnStore> take_over_endpoint(const std::vector<HostPort>& endpoints, const std::string& local_address,
                                    const Secret& secret);

// True if an endpoint is an address of this host. May block in the resolver.
bool is_on_this_host(const HostPort& endpoint);

}  // namespace lockstep::launch
