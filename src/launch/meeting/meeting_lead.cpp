// The parts of MeetingThread that keep a meeting, and that look for one.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "launch/meeting/meeting_thread.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kPortLook = 300ms;
constexpr auto kMoveCheckPause = 1s;
constexpr auto kCandidatePause = 500ms;
constexpr auto kSearchPause = 100ms;
// How much longer each further endpoint waits for those before it.
constexpr auto kEndpointHead = 2s;

}  // namespace

Status MeetingThread::keep() {
  const auto pairs = store_->list(kLaunchPrefix, rpc_deadline());
  if (!pairs.ok()) return pairs.status();
  const auto has_ended = [](const std::string& address) { return port_refuses(address, Deadline::after(kPortLook)); };
  keeper_->update(*pairs, Clock::now(), has_ended);
  LOCKSTEP_RETURN_IF_ERROR(keep_roster());
  for (const auto& [id, reason] : keeper_->refusals()) {
    if (written_refusals_.contains(id)) continue;
    log_warn("{}", reason);
    LOCKSTEP_RETURN_IF_ERROR(store_->set(kRefusedPrefix + id, reason, rpc_deadline()));
    written_refusals_[id] = reason;
  }
  const std::string hall = format(keeper_->hall());
  if (hall != written_hall_) {
    LOCKSTEP_RETURN_IF_ERROR(store_->set(kHallKey, hall, rpc_deadline()));
    written_hall_ = hall;
    ++written_version_;
  }
  return store_->set(kStampKey, fmt::format("{}/{} {}", id_, written_version_, ++beat_), rpc_deadline());
}

Status MeetingThread::keep_roster() {
  const auto [node, number] = keeper_->newest_roster();
  if (number <= keeper_->hall().roster_number) return {};
  const auto roster = read_now(*store_, kRosterPrefix + node, rpc_deadline());
  if (!roster.ok()) return roster.status();
  if (!*roster || roster_number(**roster) < number) return {};  // it is on its way
  LOCKSTEP_RETURN_IF_ERROR(store_->set(kRosterKey, **roster, rpc_deadline()));
  keeper_->set_roster_number(roster_number(**roster));
  return {};
}

// A launcher at the endpoint that knows nothing of the job is told where it goes on. True if this node went there.
bool MeetingThread::follow_move() {
  if (is_quiet(move_checked_at_, kMoveCheckPause)) return false;
  const auto moved = read_now(*store_, kMovedKey, rpc_deadline());
  if (!moved.ok() || !*moved) return false;
  Finding finding = search_.look(**moved);
  const auto removed = store_->remove(kMovedKey, rpc_deadline());
  if (!removed.ok()) log_debug("{}", removed.status().message());
  if (finding.place.kind != Place::Kind::meeting || finding.place.term <= keeper_->hall().term) return false;
  abdicate();
  join(std::move(finding));
  return true;
}

void MeetingThread::start_keeping() {
  const auto place = parse_host_port(own_.address);
  if (!place.ok()) return drop(place.status());
  auto client = TcpStore::connect(place->host, place->port, options_.secret, Deadline::after(2s));
  if (!client.ok()) return drop(client.status());
  JobState known;
  NodeRecord self;
  {
    const std::lock_guard lock(shared_->mutex);
    known = shared_->board.known();
    self = shared_->board.mine().record;
  }
  // What an earlier keeper knew of rosters is not in this store.
  known.roster_number = -1;
  written_hall_.clear();
  written_refusals_.clear();
  keeper_.emplace(self, options_.job, known,
                  CoordinatorOptions{.last_call = options_.last_call, .silent_timeout = options_.silent_timeout},
                  Clock::now());
  store_ = *client;
  log_info("this node keeps the meeting, at {}", own_.address);
  if (const Status kept = keep(); !kept.ok()) return drop(kept);
  Finding finding;
  finding.store = *std::move(client);
  finding.hall = keeper_->hall();
  join(std::move(finding));
}

void MeetingThread::abdicate() {
  keeper_.reset();
  for (const auto& key : {kHallKey, kStampKey}) {
    const auto removed = store_->remove(key, rpc_deadline());
    if (!removed.ok()) log_warn("cannot leave the meeting to another node: {}", removed.status().message());
  }
  store_.reset();
}

void MeetingThread::look_around() {
  if (is_quiet(looked_at_, store_ ? std::chrono::milliseconds(kCandidatePause) : kSearchPause)) return;
  JobState known;
  bool leaving = false;
  {
    const std::lock_guard lock(shared_->mutex);
    known = shared_->board.known();
    leaving = shared_->leaving;
  }
  if (leaving) return;
  if (known.round.number >= 0 && look_at_nodes(known)) return;
  const bool is_member =
      std::any_of(known.round.nodes.begin(), known.round.nodes.end(), [&](const auto& node) { return node.id == id_; });
  if (look_at_endpoints(known)) return;
  if (!store_ && !is_member && known.round.number < 0) keep_first_meeting();
}

// Goes to a meeting of the last round's nodes, or keeps it. False: there is none.
bool MeetingThread::look_at_nodes(const JobState& known) {
  auto outcome = search_.search_nodes(known, id_);
  if (outcome.kind == PlaceChoice::Kind::keep && !keeper_) {
    store_.reset();
    start_keeping();
    return true;
  }
  if (outcome.kind != PlaceChoice::Kind::join) return outcome.kind == PlaceChoice::Kind::keep;
  if (store_ && outcome.finding.hall.keeper.id == keeper_id_) return true;
  if (keeper_) abdicate();
  join(std::move(outcome.finding));
  return true;
}

bool MeetingThread::look_at_endpoints(const JobState& known) {
  for (std::size_t i = 0; i < options_.endpoints.size(); ++i) {
    // The first of several launchers that began at the same time keeps the meeting.
    if (keeper_ && own_.endpoint >= 0 && static_cast<int>(i) >= own_.endpoint) return false;
    if (static_cast<int>(i) == own_.endpoint) continue;
    const auto& endpoint = options_.endpoints[i];
    Finding finding = search_.look(endpoint.host, endpoint.port);
    const bool is_meeting = finding.place.kind == Place::Kind::meeting && finding.place.term >= known.term;
    if (is_meeting && finding.hall.keeper.id != id_) {
      if (store_ && finding.hall.keeper.id == keeper_id_) return true;
      if (keeper_) abdicate();
      join(std::move(finding));
      return true;
    }
    const std::lock_guard lock(shared_->mutex);
    const auto code = finding.problem.code();
    const bool is_final = code == StatusCode::unauthenticated || code == StatusCode::protocol_error;
    if (is_final && known.round.number < 0) shared_->fatal = finding.problem;
    if (!finding.problem.ok()) shared_->problem = finding.problem.message();
    shared_->changed.notify_all();
  }
  return false;
}

void MeetingThread::keep_first_meeting() {
  if (own_.endpoint < 0) {  // another launcher of this host may have had it, and ended
    auto taken = take_over_endpoint(options_.endpoints, options_.local_address, options_.secret);
    if (!taken.ok()) return;
    own_ = *std::move(taken);
    const std::lock_guard lock(shared_->mutex);
    shared_->address = own_.address;
    shared_->board.set_address(own_.address);
  }
  if (Clock::now() - began_at_ >= own_.endpoint * kEndpointHead) start_keeping();
}

}  // namespace lockstep::launch
