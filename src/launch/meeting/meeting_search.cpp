#include "launch/meeting/meeting_search.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/net/resolve.h"

namespace lockstep::launch {
namespace {

constexpr int kMaxMoves = 3;

}  // namespace

std::vector<membership::Member> nodes_to_search(const JobState& known) {
  std::vector<membership::Member> nodes = generation_of(known.established).members;
  const auto add = [&](const membership::Generation& round) {
    for (const auto& node : round.members) {
      const auto is_same = [&](const membership::Member& other) { return other.id == node.id; };
      if (std::ranges::none_of(nodes, is_same)) nodes.push_back(node);
    }
  };
  add(generation_of(known.round));
  for (const auto& other : known.others) add(other.generation);
  return nodes;
}

Finding MeetingSearch::probe_once(const std::string& host, std::uint16_t port, std::string* moved) {
  const auto deadline = Deadline::after(kProbeTimeout);
  Finding finding;
  const auto addresses = resolve(host, port, deadline);
  if (!addresses.ok()) {
    finding.problem = addresses.status();
    return finding;
  }
  // The store's own client would retry until the deadline.
  if (probe_address(addresses->front(), deadline) == AddressState::refused) {
    finding.place.kind = Place::Kind::unreachable;
    finding.problem = Status(StatusCode::unavailable, "no process is listening on " + to_string({host, port}));
    return finding;
  }
  auto store = TcpStore::connect(host, port, secret_, deadline);
  if (!store.ok()) {
    finding.problem = store.status();
    return finding;
  }
  finding.place.kind = Place::Kind::standby;
  finding.store = *std::move(store);
  auto bytes = read_now(*finding.store, kJobStateKey, deadline);
  auto elsewhere = read_now(*finding.store, kMovedKey, deadline);
  auto owner = read_now(*finding.store, kOwnerKey, deadline);
  for (const auto* value : {&bytes, &elsewhere, &owner}) {
    if (value->ok()) continue;
    finding.place.kind = Place::Kind::silent;
    finding.problem = value->status();
    return finding;
  }
  finding.owner = owner->value_or("");
  *moved = elsewhere->value_or("");
  if (!*bytes) return finding;
  auto state = parse_job_state(**bytes);
  if (!state.ok()) {
    finding.problem = state.status().with_context(finding.store->describe());
    return finding;
  }
  finding.job_state = *std::move(state);
  finding.place.kind = finding.job_state.official ? Place::Kind::meeting : Place::Kind::candidate;
  finding.place.term = finding.job_state.term;
  finding.place.established = finding.job_state.established.number;
  return finding;
}

Finding MeetingSearch::probe(const std::string& host, std::uint16_t port) {
  std::string moved;
  Finding finding = probe_once(host, port, &moved);
  for (int i = 0; i < kMaxMoves && !moved.empty(); ++i) {
    const auto place = parse_host_port(std::exchange(moved, {}));
    if (!place.ok()) break;
    Finding next = probe_once(place->host, place->port, &moved);
    if (next.place.kind != Place::Kind::meeting || next.place.term < finding.place.term) break;
    finding = std::move(next);
  }
  return finding;
}

Finding MeetingSearch::probe(const std::string& address) {
  const auto place = parse_host_port(address);
  if (place.ok()) return probe(place->host, place->port);
  Finding finding;
  finding.problem = place.status();
  return finding;
}

void MeetingSearch::redirect(const HostPort& endpoint, const JobState& job_state, const std::string& address) {
  std::string moved;
  const Finding finding = probe_once(endpoint.host, endpoint.port, &moved);
  // A launcher that knows of no round has just started, whatever its term.
  const bool is_older = finding.place.kind == Place::Kind::meeting &&
                        (finding.place.term < job_state.term || finding.job_state.round.number < 0);
  if (!is_older || finding.job_state.job.run_id != job_state.job.run_id || moved == address) return;
  const Status written = finding.store->set(kMovedKey, address, Deadline::after(kProbeTimeout));
  log_info("redirected the launcher at {} to the coordinator at {}: {}", to_string(endpoint), address,
           written.to_string());
}

MeetingSearch::Outcome MeetingSearch::search_nodes(const JobState& known, const std::string& self, bool coordinates) {
  std::vector<Finding> findings;
  std::vector<Place> places;
  const auto now = std::chrono::steady_clock::now();
  for (const auto& node : nodes_to_search(known)) {
    Finding finding;
    if (node.id == self) {
      finding.place = {.kind = coordinates ? Place::Kind::meeting : Place::Kind::standby,
                       .term = known.term,
                       .established = known.established.number};
      finding.place.is_self = true;
    } else {
      finding = probe(node.store_address);
      // Its address may belong to a launcher that was started later, perhaps this one.
      const bool is_other = !finding.owner.empty() && finding.owner != node.id;
      if (is_other && finding.place.kind != Place::Kind::meeting) finding.place.kind = Place::Kind::unreachable;
      if (finding.owner == self) finding.place.kind = Place::Kind::unreachable;
      if (finding.place.kind == Place::Kind::silent) {
        const auto since = silent_since_.try_emplace(node.store_address, now).first->second;
        finding.place.silent_for = std::chrono::duration_cast<std::chrono::milliseconds>(now - since);
      } else {
        silent_since_.erase(node.store_address);
      }
    }
    places.push_back(finding.place);
    findings.push_back(std::move(finding));
  }
  const auto choice = choose_place(places, known.term, silent_timeout_);
  log_debug("searching for the coordinator among {} nodes: {}", places.size(), choice.reason);
  Outcome outcome{.kind = choice.kind, .finding = {}};
  if (choice.kind == PlaceChoice::Kind::join) outcome.finding = std::move(findings[choice.place]);
  return outcome;
}

}  // namespace lockstep::launch
