#include "launch/meeting/meeting_search.h"

#include <utility>

#include "base/log.h"
#include "launch/options/endpoint.h"

namespace lockstep::launch {
namespace {

constexpr int kMaxMoves = 3;

}  // namespace

Finding MeetingSearch::look_once(const std::string& host, std::uint16_t port, std::string* moved) {
  const auto deadline = Deadline::after(kLookTime);
  Finding finding;
  // The store's own client would try again until the deadline.
  if (port_refuses(to_string(HostPort{host, port}), deadline)) {
    finding.place.kind = Place::Kind::refused;
    finding.problem = Status(StatusCode::unavailable, "nobody listens at " + to_string(HostPort{host, port}));
    return finding;
  }
  auto store = TcpStore::connect(host, port, secret_, deadline);
  if (!store.ok()) {
    finding.problem = store.status();
    return finding;
  }
  finding.place.kind = Place::Kind::standby;
  finding.store = *std::move(store);
  auto bytes = read_now(*finding.store, kHallKey, deadline);
  auto elsewhere = read_now(*finding.store, kMovedKey, deadline);
  if (!bytes.ok() || !elsewhere.ok()) {
    finding.place.kind = Place::Kind::silent;
    finding.problem = bytes.ok() ? elsewhere.status() : bytes.status();
    return finding;
  }
  *moved = elsewhere->value_or("");
  if (!*bytes) return finding;
  auto hall = parse_hall_state(**bytes);
  if (!hall.ok()) {
    finding.problem = hall.status().with_context(finding.store->describe());
    return finding;
  }
  finding.hall = *std::move(hall);
  finding.place.kind = finding.hall.official ? Place::Kind::meeting : Place::Kind::candidate;
  finding.place.term = finding.hall.term;
  return finding;
}

Finding MeetingSearch::look(const std::string& host, std::uint16_t port) {
  std::string moved;
  Finding finding = look_once(host, port, &moved);
  for (int i = 0; i < kMaxMoves && !moved.empty(); ++i) {
    const auto place = parse_host_port(std::exchange(moved, {}));
    if (!place.ok()) break;
    Finding next = look_once(place->host, place->port, &moved);
    if (next.place.kind != Place::Kind::meeting || next.place.term < finding.place.term) break;
    finding = std::move(next);
  }
  return finding;
}

Finding MeetingSearch::look(const std::string& address) {
  const auto place = parse_host_port(address);
  if (place.ok()) return look(place->host, place->port);
  Finding finding;
  finding.problem = place.status();
  return finding;
}

void MeetingSearch::call_home(const HostPort& endpoint, const JobState& hall, const std::string& address) {
  std::string moved;
  const Finding finding = look_once(endpoint.host, endpoint.port, &moved);
  const bool is_older = finding.place.kind == Place::Kind::meeting && finding.place.term < hall.term;
  if (!is_older || finding.hall.job.run_id != hall.job.run_id || moved == address) return;
  const Status told = finding.store->set(kMovedKey, address, Deadline::after(kLookTime));
  log_info("told the launcher at {} that the nodes meet at {}: {}", to_string(endpoint), address, told.to_string());
}

MeetingSearch::Outcome MeetingSearch::search_nodes(const JobState& known, const std::string& self) {
  std::vector<Finding> findings;
  std::vector<Place> places;
  const auto now = std::chrono::steady_clock::now();
  for (const auto& node : known.round.nodes) {
    Finding finding;
    if (node.id == self) {
      finding.place.is_self = true;
    } else {
      finding = look(node.address);
      if (finding.place.kind == Place::Kind::silent) {
        const auto since = silent_since_.try_emplace(node.address, now).first->second;
        finding.place.silent_for = std::chrono::duration_cast<std::chrono::milliseconds>(now - since);
      } else {
        silent_since_.erase(node.address);
      }
    }
    places.push_back(finding.place);
    findings.push_back(std::move(finding));
  }
  const auto choice = choose_place(places, known.term, patience_);
  log_debug("looking for the meeting among {} nodes: {}", places.size(), choice.reason);
  Outcome outcome{.kind = choice.kind, .finding = {}};
  if (choice.kind == PlaceChoice::Kind::join) outcome.finding = std::move(findings[choice.place]);
  return outcome;
}

}  // namespace lockstep::launch
