// The parts of MeetingThread that act as the coordinator, and that search for one.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "launch/meeting/meeting_thread.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kPortProbeTimeout = 300ms;
constexpr auto kMoveCheckPause = 1s;
constexpr auto kCandidatePause = 500ms;
constexpr auto kSearchPause = 100ms;
// How much longer each further endpoint waits for the previous ones.
constexpr auto kEndpointHead = 2s;

}  // namespace

Status MeetingThread::coordinate() {
  const auto pairs = store_->list(kLaunchPrefix, rpc_deadline());
  if (!pairs.ok()) return pairs.status();
  const auto has_ended = [](const std::string& address) {
    return port_refuses(address, Deadline::after(kPortProbeTimeout));
  };
  coordinator_->update(*pairs, Clock::now(), has_ended);
  LOCKSTEP_RETURN_IF_ERROR(collect_roster());
  for (const auto& [id, reason] : coordinator_->refusals()) {
    if (written_refusals_.contains(id)) continue;
    log_warn("{}", reason);
    LOCKSTEP_RETURN_IF_ERROR(store_->set(kRefusedPrefix + id, reason, rpc_deadline()));
    written_refusals_[id] = reason;
  }
  const std::string state = format(coordinator_->job_state());
  if (state != written_state_) {
    LOCKSTEP_RETURN_IF_ERROR(store_->set(kJobStateKey, state, rpc_deadline()));
    written_state_ = state;
    ++written_version_;
  }
  return store_->set(kStampKey, fmt::format("{}/{} {}", id_, written_version_, ++beat_), rpc_deadline());
}

Status MeetingThread::collect_roster() {
  const auto [node, number] = coordinator_->newest_roster();
  if (number <= coordinator_->job_state().roster_number) return {};
  const auto roster = read_now(*store_, kRosterPrefix + node, rpc_deadline());
  if (!roster.ok()) return roster.status();
  if (!*roster || roster_number(**roster) < number) return {};  // it has not arrived yet
  LOCKSTEP_RETURN_IF_ERROR(store_->set(kRosterKey, **roster, rpc_deadline()));
  coordinator_->set_roster_number(roster_number(**roster));
  return {};
}

// A launcher at the endpoint that does not know the job is redirected to its coordinator. True if this node joined that
// one.
bool MeetingThread::follow_move() {
  if (is_too_soon(move_checked_at_, kMoveCheckPause)) return false;
  const auto moved = read_now(*store_, kMovedKey, rpc_deadline());
  if (!moved.ok() || !*moved) return false;
  Finding finding = search_.probe(**moved);
  const auto removed = store_->remove(kMovedKey, rpc_deadline());
  if (!removed.ok()) log_debug("{}", removed.status().message());
  if (finding.place.kind != Place::Kind::meeting || finding.place.term <= coordinator_->job_state().term) return false;
  step_down();
  join(std::move(finding));
  return true;
}

void MeetingThread::become_coordinator() {
  const auto place = parse_host_port(own_.address);
  if (!place.ok()) return drop(place.status());
  auto client = TcpStore::connect(place->host, place->port, options_.secret, Deadline::after(2s));
  if (!client.ok()) return drop(client.status());
  JobState known;
  NodeRecord self;
  {
    const std::lock_guard lock(shared_->mutex);
    known = shared_->view.known();
    self = shared_->view.mine().record;
  }
  // The rosters that an earlier coordinator had are not in this store.
  known.roster_number = -1;
  written_state_.clear();
  written_refusals_.clear();
  coordinator_.emplace(
      self, options_.job, known,
      CoordinatorOptions{.last_call_timeout = options_.last_call_timeout, .silent_timeout = options_.silent_timeout},
      Clock::now());
  store_ = *client;
  log_info("this node is the coordinator, at {}", own_.address);
  if (const Status status = coordinate(); !status.ok()) return drop(status);
  Finding finding;
  finding.store = *std::move(client);
  finding.job_state = coordinator_->job_state();
  join(std::move(finding));
}

void MeetingThread::step_down() {
  coordinator_.reset();
  for (const auto& key : {kJobStateKey, kStampKey}) {
    const auto removed = store_->remove(key, rpc_deadline());
    if (!removed.ok()) log_warn("cannot hand over to another coordinator: {}", removed.status().message());
  }
  store_.reset();
}

void MeetingThread::find_coordinator() {
  if (is_too_soon(searched_at_, store_ ? std::chrono::milliseconds(kCandidatePause) : kSearchPause)) return;
  JobState known;
  bool leaving = false;
  {
    const std::lock_guard lock(shared_->mutex);
    known = shared_->view.known();
    leaving = shared_->leaving;
  }
  if (leaving) return;
  if (known.round.number >= 0 && search_nodes(known)) return;
  const bool is_member =
      std::any_of(known.round.nodes.begin(), known.round.nodes.end(), [&](const auto& node) { return node.id == id_; });
  if (search_endpoints(known)) return;
  if (!store_ && !is_member && known.round.number < 0) become_first_coordinator();
}

// Joins the coordinator among the last round's nodes, or becomes it. False: there is none.
bool MeetingThread::search_nodes(const JobState& known) {
  auto outcome = search_.search_nodes(known, id_);
  if (outcome.kind == PlaceChoice::Kind::coordinate && !coordinator_) {
    store_.reset();
    become_coordinator();
    return true;
  }
  if (outcome.kind != PlaceChoice::Kind::join) return outcome.kind == PlaceChoice::Kind::coordinate;
  if (store_ && outcome.finding.job_state.coordinator.id == coordinator_id_) return true;
  if (coordinator_) step_down();
  join(std::move(outcome.finding));
  return true;
}

bool MeetingThread::search_endpoints(const JobState& known) {
  for (std::size_t i = 0; i < options_.endpoints.size(); ++i) {
    // Of several launchers that started at the same time, the one at the first endpoint becomes the coordinator.
    if (coordinator_ && own_.endpoint >= 0 && static_cast<int>(i) >= own_.endpoint) return false;
    if (static_cast<int>(i) == own_.endpoint) continue;
    const auto& endpoint = options_.endpoints[i];
    Finding finding = search_.probe(endpoint.host, endpoint.port);
    const bool is_meeting = finding.place.kind == Place::Kind::meeting && finding.place.term >= known.term;
    if (is_meeting && finding.job_state.coordinator.id != id_) {
      if (store_ && finding.job_state.coordinator.id == coordinator_id_) return true;
      if (coordinator_) step_down();
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

void MeetingThread::become_first_coordinator() {
  if (own_.endpoint < 0) {  // another launcher of this host may have had the endpoint, and ended
    auto taken = take_over_endpoint(options_.endpoints, options_.local_address, options_.secret);
    if (!taken.ok()) return;
    own_ = *std::move(taken);
    const std::lock_guard lock(shared_->mutex);
    shared_->address = own_.address;
    shared_->view.set_address(own_.address);
  }
  if (Clock::now() - began_at_ >= own_.endpoint * kEndpointHead) become_coordinator();
}

}  // namespace lockstep::launch
