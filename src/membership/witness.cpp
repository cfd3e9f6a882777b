#include "membership/witness.h"

#include <fmt/format.h>

#include "base/net/resolve.h"
#include "base/net/socket.h"
#include "base/random.h"
#include "store/tcp/tcp_store.h"

namespace lockstep::membership {
namespace {

const std::string kPrefix = "witness/";
const std::string kIdKey = kPrefix + "id";
const std::string kVotePrefix = kPrefix + "vote/";

Result<std::shared_ptr<TcpStore>> connect(const std::string& address, const Secret& secret, Deadline deadline) {
  const auto place = parse_host_port(address);
  if (!place.ok()) return place.status();
  const auto resolved = resolve(place->host, place->port, deadline);
  if (!resolved.ok()) return resolved.status();
  if (probe_address(resolved->front(), deadline) != AddressState::answered) {
    return Status(StatusCode::unavailable, "the witness at " + address + " cannot be reached");
  }
  return TcpStore::connect(place->host, place->port, secret, deadline);
}

}  // namespace

Result<std::unique_ptr<Witness>> Witness::open(StoreServerOptions options) {
  const Secret secret = options.secret;
  auto server = TcpStoreServer::start(std::move(options));
  if (!server.ok()) return server.status();
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  const auto store = connect((*server)->address(), secret, deadline);
  if (!store.ok()) return store.status();
  LOCKSTEP_RETURN_IF_ERROR((*store)->set(kIdKey, random_hex(16), deadline));
  return std::unique_ptr<Witness>(new Witness(*std::move(server)));
}

Result<WitnessView> ask_witness(const std::string& address, const Secret& secret, Deadline deadline) {
  const auto store = connect(address, secret, deadline);
  if (!store.ok()) return store.status();
  const auto pairs = (*store)->list(kPrefix, deadline);
  if (!pairs.ok()) return pairs.status();
  WitnessView view;
  for (const auto& [key, value] : *pairs) {
    if (key == kIdKey) view.id = value;
    if (!key.starts_with(kVotePrefix)) continue;
    auto generation = parse_generation(value);
    if (!generation.ok()) return generation.status().with_context("the witness at " + address);
    view.votes[key.substr(kVotePrefix.size())] = *std::move(generation);
  }
  if (view.id.empty()) return Status(StatusCode::protocol_error, "the store at " + address + " is not a witness");
  return view;
}

Status request_vote(const std::string& address, const Secret& secret, const WitnessView& seen,
                    const std::string& witness_register, const Generation& generation, Deadline deadline) {
  const auto store = connect(address, secret, deadline);
  if (!store.ok()) return store.status();
  std::optional<std::string> expected;
  if (const auto found = seen.votes.find(witness_register); found != seen.votes.end()) expected = format(found->second);
  const std::string desired = format(generation);
  const auto present = (*store)->compare_set(kVotePrefix + witness_register, expected, desired, deadline);
  if (!present.ok()) return present.status();  // not_found: another witness process, with another id
  if (*present == desired) return {};
  return Status(StatusCode::aborted, "the witness has voted for another decision");
}

}  // namespace lockstep::membership
