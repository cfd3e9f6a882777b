#include "launch/options/endpoint.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "base/net/resolve.h"
#include "base/unique_fd.h"
#include "rendezvous/network_interface.h"

namespace lockstep::launch {
namespace {

bool is_loopback_name(const std::string& host) {
  return host == "localhost" || host.starts_with("127.") || host == "::1" || host == "ip6-localhost";
}

// The address of an endpoint as this host would bind it.
Result<SocketAddress> address_to_bind(const HostPort& endpoint, const std::string& local_address) {
  const auto addresses = resolve(endpoint.host, endpoint.port);
  if (!addresses.ok()) return addresses.status();
  SocketAddress address = addresses->front();
  if (address.is_loopback() && !is_loopback_name(endpoint.host)) {
    auto local = choose_local_address(local_address, "");
    if (!local.ok()) return local;
    local->set_port(endpoint.port);
    log_info("{} is {} on this host, which others cannot reach; the nodes meet at {} instead", endpoint.host,
             address.to_string(), local->to_string());
    return local;
  }
  return address;
}

Result<std::unique_ptr<TcpStoreServer>> serve(SocketAddress address, const Secret& secret) {
  StoreServerOptions options;
  options.host = address.host();
  options.port = address.port();
  options.secret = secret;
  return TcpStoreServer::start(std::move(options));
}

Result<OwnStore> own(std::unique_ptr<TcpStoreServer> server, int endpoint) {
  std::string address = server->address();
  return OwnStore{.server = std::move(server), .address = std::move(address), .endpoint = endpoint};
}

Status explain_secret(const Status& status) {
  return Status(
      status.code(),
      fmt::format("nodes of different hosts need a common secret: set the same LOCKSTEP_SECRET_FILE (or "
                  "LOCKSTEP_SECRET) for the launchers of all nodes, for example a file made with `(umask 077; "
                  "openssl rand -hex 32 > secret)` ({})",
                  status.message()));
}

Result<OwnStore> open_standby(const HostPort& towards, const std::string& local_address, const Secret& secret) {
  auto local = choose_local_address(local_address, towards.host);
  if (!local.ok()) return local.status().with_context("no standby store");
  local->set_port(towards.port);
  auto server = serve(*local, secret);
  if (!server.ok() && server.status().code() == StatusCode::already_exists) {
    local->set_port(0);
    server = serve(*local, secret);
  }
  if (!server.ok()) {
    const bool locked = server.status().code() == StatusCode::unauthenticated;
    return locked ? explain_secret(server.status()) : server.status().with_context("no standby store");
  }
  return own(*std::move(server), -1);
}

}  // namespace

Result<std::vector<HostPort>> parse_endpoints(const std::string& text, std::uint16_t default_port) {
  std::vector<HostPort> endpoints;
  std::size_t begin = 0;
  while (true) {
    const std::size_t comma = text.find(',', begin);
    const std::string item = text.substr(begin, comma == std::string::npos ? comma : comma - begin);
    const bool has_port = item.empty() || (item.find(':') != std::string::npos && !item.ends_with(']'));
    auto place = parse_host_port(has_port ? item : fmt::format("{}:{}", item, default_port));
    if (!place.ok()) return place.status();
    endpoints.push_back(*std::move(place));
    if (comma == std::string::npos) return endpoints;
    begin = comma + 1;
  }
}

Result<OwnStore> take_over_endpoint(const std::vector<HostPort>& endpoints, const std::string& local_address,
                                    const Secret& secret) {
  Status last(StatusCode::not_found, "no endpoint is an address of this host");
  for (std::size_t i = 0; i < endpoints.size(); ++i) {
    const auto address = address_to_bind(endpoints[i], local_address);
    if (!address.ok()) {
      last = address.status();
      continue;
    }
    auto server = serve(*address, secret);
    if (server.ok()) return own(*std::move(server), static_cast<int>(i));
    // Not an address of this host, or used by another launcher: there may be a further endpoint.
    if (server.status().code() == StatusCode::unauthenticated) return explain_secret(server.status());
    const auto code = server.status().code();
    if (code != StatusCode::already_exists && code != StatusCode::invalid_argument) return server.status();
  }
  return last;
}

Result<OwnStore> open_own_store(const std::vector<HostPort>& endpoints, const std::string& local_address,
                                const Secret& secret) {
  auto own_store = take_over_endpoint(endpoints, local_address, secret);
  if (own_store.ok() || own_store.status().code() == StatusCode::unauthenticated) return own_store;
  const HostPort* towards = nullptr;
  for (const auto& endpoint : endpoints) {
    if (endpoint.port == 0) {
      return Status(StatusCode::invalid_argument,
                    fmt::format("the endpoint {} has port 0, and is not this host; give it a port that all nodes "
                                "know",
                                to_string(endpoint)));
    }
    if (towards == nullptr && resolve(endpoint.host, endpoint.port).ok()) towards = &endpoint;
  }
  if (towards == nullptr) return own_store.status().with_context("--rdzv-endpoint");
  return open_standby(*towards, local_address, secret);
}

bool is_on_this_host(const HostPort& endpoint) {
  auto addresses = resolve(endpoint.host, 0);
  return addresses.ok() && listen_on(addresses->front()).ok();
}

}  // namespace lockstep::launch
