#include "membership/attester.h"

#include <fmt/format.h>

#include "base/net/socket.h"
#include "membership/roster.h"
#include "store/read_now.h"
#include "store/tcp/tcp_store.h"

namespace lockstep::membership {
namespace {

std::string ended_key(const ProcessIdentity& process) {
  return fmt::format("ended/{}/{}", process.pid, process.started);
}

std::optional<Attestation> ask_kernel(const Member& member, const std::string& roster) {
  if (!has_ended({.pid = member.pid, .started = member.started})) return std::nullopt;
  auto present = read_roster(roster);  // only now, after the end
  if (!present.ok()) return std::nullopt;
  return Attestation{.newest = std::move(present->generation)};
}

std::optional<Attestation> ask_attester(const Member& member, const Secret& secret, Deadline deadline) {
  const auto address = parse_host_port(member.attester);
  if (!address.ok()) return std::nullopt;
  // A refused connection is not worth waiting for.
  const auto resolved = resolve(address->host, address->port);
  if (!resolved.ok() || probe_address(resolved->front(), deadline) != AddressState::answered) return std::nullopt;
  const auto store = TcpStore::connect(address->host, address->port, secret, deadline);
  if (!store.ok()) return std::nullopt;
  const auto text = read_now(**store, ended_key({.pid = member.pid, .started = member.started}), deadline);
  if (!text.ok() || !*text) return std::nullopt;
  auto newest = parse_generation(**text);
  if (!newest.ok()) return std::nullopt;
  return Attestation{.newest = *std::move(newest)};
}

}  // namespace

Result<std::unique_ptr<Attester>> Attester::open(StoreServerOptions options) {
  const Secret secret = options.secret;
  auto server = TcpStoreServer::start(std::move(options));
  if (!server.ok()) return server.status().with_context("opening the attester");
  auto attester = connect((*server)->address(), secret, Deadline::after(std::chrono::seconds(10)));
  if (attester.ok()) (*attester)->server_ = *std::move(server);
  return attester;
}

Result<std::unique_ptr<Attester>> Attester::connect(const std::string& address, const Secret& secret,
                                                    Deadline deadline) {
  const auto place = parse_host_port(address);
  if (!place.ok()) return place.status();
  auto store = TcpStore::connect(place->host, place->port, secret, deadline);
  if (!store.ok()) return store.status().with_context("connecting to the attester");
  return std::unique_ptr<Attester>(new Attester(nullptr, address, *std::move(store)));
}

Status Attester::attest(const ProcessIdentity& ended, const std::string& roster) {
  const auto present = read_roster(roster);
  if (!present.ok()) return present.status();
  return store_->set(ended_key(ended), format(present->generation), Deadline::after(std::chrono::seconds(1)));
}

std::optional<Attestation> find_attestation(const Member& member, const std::string& site, const std::string& roster,
                                            const Secret& secret, Deadline deadline) {
  if (!site.empty() && member.site == site) return ask_kernel(member, roster);
  return member.attester.empty() ? std::nullopt : ask_attester(member, secret, deadline);
}

}  // namespace lockstep::membership
