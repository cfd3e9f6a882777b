#include "membership/attester.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/net/resolve.h"
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
  auto accepted = read_accepted(roster, Attestation::kGenerations);  // only now, after the end
  if (!accepted.ok()) return std::nullopt;
  return Attestation{.accepted = *std::move(accepted)};
}

// One generation per line.
std::string format(const std::vector<Generation>& accepted) {
  std::string text;
  for (const Generation& one : accepted) text += format(one) + '\n';
  return text;
}

std::optional<Attestation> parse_attestation(std::string_view text) {
  Attestation attestation;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    auto one = parse_generation(text.substr(0, end));
    if (end == text.npos || !one.ok() || attestation.accepted.size() == Attestation::kGenerations) return std::nullopt;
    attestation.accepted.push_back(*std::move(one));
    text.remove_prefix(end + 1);
  }
  return attestation;
}

std::optional<Attestation> ask_attester(const Member& member, const Secret& secret, Deadline deadline) {
  const auto address = parse_host_port(member.attester);
  if (!address.ok()) return std::nullopt;
  // A refused connection is not worth waiting for.
  const auto resolved = resolve(address->host, address->port, deadline);
  if (!resolved.ok() || probe_address(resolved->front(), deadline) != AddressState::answered) return std::nullopt;
  const auto store = TcpStore::connect(address->host, address->port, secret, deadline);
  if (!store.ok()) return std::nullopt;
  const auto text = read_now(**store, ended_key({.pid = member.pid, .started = member.started}), deadline);
  if (!text.ok() || !*text) return std::nullopt;
  return parse_attestation(**text);
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
  const auto accepted = read_accepted(roster, Attestation::kGenerations);
  if (!accepted.ok()) return accepted.status();
  const std::string key = ended_key(ended);
  LOCKSTEP_RETURN_IF_ERROR(store_->set(key, format(*accepted), Deadline::after(std::chrono::seconds(1))));
  if (std::find(attested_.begin(), attested_.end(), key) == attested_.end()) attested_.push_back(key);
  if (attested_.size() > kKeptAttestations) {
    const auto removed = store_->remove(attested_.front(), Deadline::after(std::chrono::seconds(1)));
    if (removed.ok()) attested_.pop_front();
  }
  return {};
}

std::optional<Attestation> find_attestation(const Member& member, const std::string& site, const std::string& roster,
                                            const Secret& secret, Deadline deadline) {
  if (!site.empty() && member.site == site) return ask_kernel(member, roster);
  return member.attester.empty() ? std::nullopt : ask_attester(member, secret, deadline);
}

}  // namespace lockstep::membership
