#include "launch/meeting/meeting_thread.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/start_thread.h"
#include "membership/roster.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

// The time that TcpStore allows a server beyond a call's deadline.
constexpr std::chrono::milliseconds kAnswerGrace = 2s;
constexpr auto kRedirectInterval = 2s;
constexpr auto kMoveCheckPause = 1s;
constexpr auto kCandidatePause = 500ms;
constexpr auto kSearchPause = 100ms;
// Of a coordinator that waits for nodes.
constexpr auto kWaitingPause = 2s;
// While the nodes of a round still have to accept it.
constexpr std::chrono::milliseconds kFormingTick = 5ms;
// How much longer each further endpoint waits for the previous ones.
constexpr auto kEndpointHead = 2s;

}  // namespace

MeetingThread::MeetingThread(const StoreMeetingOptions& options, OwnStore own, MeetingShared* shared)
    : options_(options),
      id_(shared->view.mine().record.id),
      shared_(shared),
      own_(std::move(own)),
      search_(options.secret, options.silent_timeout / 4) {}

MeetingThread::~MeetingThread() {
  if (thread_.joinable()) thread_.join();
}

Status MeetingThread::start() {
  auto thread = start_thread("meets the other nodes", [this] { run(); });
  if (!thread.ok()) return thread.status();
  thread_ = *std::move(thread);
  return {};
}

std::chrono::milliseconds MeetingThread::rpc_timeout() const {
  return std::max(options_.silent_timeout - kAnswerGrace, std::chrono::milliseconds(100));
}

bool MeetingThread::is_too_soon(Clock::time_point& last, std::chrono::milliseconds pause) const {
  const auto now = Clock::now();
  if (now - last < pause) return true;
  last = now;
  return false;
}

void MeetingThread::run() {
  while (true) {
    tick();
    if (may_end()) return;
    std::unique_lock lock(shared_->mutex);
    const auto version = shared_->view.version();
    const bool leaving = shared_->leaving;
    const bool is_forming = role_ ? role_->coordinator().is_forming() : shared_->view.is_forming();
    shared_->changed.wait_for(lock, is_forming ? std::min(kFormingTick, options_.tick) : options_.tick,
                              [&] { return shared_->view.version() != version || shared_->leaving != leaving; });
  }
}

// True once this thread is no longer needed.
bool MeetingThread::may_end() {
  {
    const std::lock_guard lock(shared_->mutex);
    if (!shared_->leaving) return false;
    if (!leaving_since_) leaving_since_ = Clock::now();
    const bool announced = store_ != nullptr && announced_ == shared_->view.version();
    const bool patient = Clock::now() - *leaving_since_ < options_.linger;
    if (store_ != nullptr && patient && (!announced || (role_ && !role_->coordinator().is_alone()))) return false;
  }
  if (store_) {
    const std::string will = fmt::format("{}{}/{}", kGonePrefix, id_, connection_);
    const Status withdrawn = store_->withdraw_last_will(will, Deadline::after(100ms));
    if (!withdrawn.ok()) log_debug("{}", withdrawn.message());
  }
  return true;
}

void MeetingThread::mark_own_store(const std::string& coordinator) {
  const auto place = parse_host_port(own_.address);
  if (!place.ok()) return;
  const auto store = TcpStore::connect(place->host, place->port, options_.secret, rpc_deadline());
  Status status = store.status();
  if (status.ok()) status = (*store)->set(kOwnerKey, id_, rpc_deadline());
  for (const auto& key : {kJobStateKey, kStampKey}) {
    if (status.ok()) status = (*store)->remove(key, rpc_deadline()).status();
  }
  if (status.ok() && !coordinator.empty()) status = (*store)->set(kMovedKey, coordinator, rpc_deadline());
  // What it did not write itself is for follow_move().
  if (status.ok() && coordinator.empty() && !marked_coordinator_.empty()) {
    status = (*store)->remove(kMovedKey, rpc_deadline()).status();
  }
  own_is_marked_ = status.ok();
  if (status.ok()) marked_coordinator_ = coordinator;
  if (!status.ok()) log_info("this node's own store: {}", status.message());
}

void MeetingThread::tick() {
  const std::string coordinator = store_ && state_official_ ? coordinator_address_ : "";
  if (!role_ && (!own_is_marked_ || coordinator != marked_coordinator_)) mark_own_store(coordinator);
  if (role_ && follow_move()) return;
  if (role_) {
    if (const Status status = role_->update(); !status.ok()) drop(status);
  }
  if (store_) exchange();
  const bool is_settled = store_ && state_official_ && (!role_ || role_->coordinator().has_quorum());
  // Another coordinator may wait for this one's nodes.
  const bool may_find_earlier =
      role_ && (state_round_ < 0 ? own_.endpoint > 0 : role_->coordinator().waits_for_nodes());
  if (!is_settled || may_find_earlier) find_coordinator();
  if (role_ && state_official_ && state_round_ >= 0 && !is_too_soon(redirected_at_, kRedirectInterval)) {
    for (std::size_t i = 0; i < options_.endpoints.size(); ++i) {
      if (static_cast<int>(i) != own_.endpoint)
        search_.redirect(options_.endpoints[i], role_->job_state(), own_.address);
    }
  }
}

void MeetingThread::exchange() {
  Status status = store_->set(kBeatPrefix + id_, std::to_string(++beat_), rpc_deadline());
  if (status.ok()) status = announce();
  if (status.ok()) status = read_job_state();
  if (status.ok()) status = announce();  // what this node has accepted, at once
  if (status.ok()) status = read_refusal();
  if (status.ok()) status = exchange_rosters();
  if (!status.ok()) drop(status);
}

Status MeetingThread::announce() {
  std::uint64_t version = 0;
  NodeState state;
  {
    const std::lock_guard lock(shared_->mutex);
    version = shared_->view.version();
    if (version == announced_) return {};
    state = shared_->view.announcement(connection_, state_round_id_, state_established_id_);
  }
  LOCKSTEP_RETURN_IF_ERROR(store_->set(kNodePrefix + id_, format(state), rpc_deadline()));
  announced_ = version;
  return {};
}

Status MeetingThread::read_job_state() {
  const auto stamp = read_now(*store_, kStampKey, rpc_deadline());
  if (!stamp.ok()) return stamp.status();
  const auto now = Clock::now();
  if (!*stamp) return Status(StatusCode::closed, "the node there is no longer the coordinator");
  if (**stamp == stamp_) {
    if (now - stamp_changed_at_ <= options_.silent_timeout) return {};
    return Status(StatusCode::timed_out, fmt::format("the coordinator at {} is silent", store_->describe()));
  }
  stamp_ = **stamp;
  stamp_changed_at_ = now;
  const std::string version = stamp_.substr(0, stamp_.find(' '));
  if (version == state_version_) return {};
  const auto bytes = read_now(*store_, kJobStateKey, rpc_deadline());
  if (!bytes.ok()) return bytes.status();
  if (!*bytes) return Status(StatusCode::closed, "the node there is no longer the coordinator");
  const auto state = parse_job_state(**bytes);
  if (!state.ok()) return state.status();
  const Status accepted = accept(*state);
  if (!accepted.ok()) {
    if (std::exchange(refused_round_, state->round.id) != state->round.id) {
      log_warn("round {} cannot be accepted: {}", state->round.number, accepted.message());
    }
    return {};  // tries again; without an entry in the roster, no node could know what this one has accepted
  }
  remember(*state);
  state_version_ = version;
  state_roster_ = state->roster_number;
  const std::lock_guard lock(shared_->mutex);
  shared_->view.apply(*state);
  shared_->problem.clear();
  shared_->changed.notify_all();
  return {};
}

Status MeetingThread::accept(const JobState& state) {
  if (options_.roster.empty()) return {};
  {
    const std::lock_guard lock(shared_->mutex);
    if (!shared_->view.needs_roster_entry(state)) return {};
  }
  const auto present = membership::offer_roster(options_.roster, {.generation = generation_of(state.round)});
  if (!present.ok() || present->generation.id == state.round.id) return present.status();
  return Status(StatusCode::already_exists, fmt::format("the roster has another round {}, or a newer one: {}",
                                                        state.round.number, present->generation.number - 1));
}

void MeetingThread::remember(const JobState& state) {
  coordinator_id_ = state.coordinator.id;
  coordinator_address_ = state.coordinator.address;
  state_official_ = state.official;
  state_round_ = state.round.number;
  state_round_id_ = state.round.id;
  state_established_id_ = state.established.id;
}

Status MeetingThread::read_refusal() {
  {
    const std::lock_guard lock(shared_->mutex);
    if (!shared_->view.mine().wants_round) return {};
  }
  const auto refusal = read_now(*store_, kRefusedPrefix + id_, rpc_deadline());
  if (!refusal.ok() || !*refusal) return refusal.status();
  const std::lock_guard lock(shared_->mutex);
  shared_->fatal = Status(StatusCode::mismatch, **refusal);
  shared_->changed.notify_all();
  return {};
}

Status MeetingThread::exchange_rosters() {
  std::optional<std::string> offer;
  std::int64_t newest = -1;
  {
    const std::lock_guard lock(shared_->mutex);
    newest = shared_->view.newest_roster_number();
    if (newest > state_roster_ && newest > offered_roster_) offer = shared_->view.roster();
  }
  if (offer) {
    LOCKSTEP_RETURN_IF_ERROR(store_->set(kRosterPrefix + id_, *offer, rpc_deadline()));
    offered_roster_ = newest;
  }
  if (state_roster_ <= newest) return {};
  const auto roster = read_now(*store_, kRosterKey, rpc_deadline());
  if (!roster.ok() || !*roster) return roster.status();
  const std::lock_guard lock(shared_->mutex);
  shared_->view.offer_roster(**roster);
  return {};
}

void MeetingThread::drop(const Status& why) {
  log_info("lost the coordinator: {}", why.message());
  if (role_) own_is_marked_ = false;  // its job state must not attract others
  store_.reset();
  role_.reset();
  state_official_ = false;
  searched_at_ = {};
  const std::lock_guard lock(shared_->mutex);
  shared_->problem = why.message();
}

void MeetingThread::join(Finding finding) {
  store_ = std::move(finding.store);
  remember(finding.job_state);
  state_version_.clear();
  stamp_.clear();
  stamp_changed_at_ = Clock::now();
  state_roster_ = -1;
  offered_roster_ = -1;
  announced_ = 0;
  ++connection_;
  log_info("joined the coordinator at {}", store_->describe());
  const auto will =
      store_->set_last_will(fmt::format("{}{}/{}", kGonePrefix, id_, connection_), "gone", rpc_deadline());
  if (!will.ok()) return drop(will.status());
  exchange();
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
  const bool is_newer = finding.place.term > role_->job_state().term ||
                        (role_->job_state().round.number < 0 && finding.job_state.round.number >= 0);
  if (finding.place.kind != Place::Kind::meeting || !is_newer) return false;
  step_down();
  join(std::move(finding));
  return true;
}

void MeetingThread::become_coordinator() {
  const auto place = parse_host_port(own_.address);
  if (!place.ok()) return drop(place.status());
  auto client = TcpStore::connect(place->host, place->port, options_.secret, Deadline::after(2s));
  if (!client.ok()) return drop(client.status());
  if (!marked_coordinator_.empty()) {
    const auto removed = (*client)->remove(kMovedKey, rpc_deadline());
    if (!removed.ok()) return drop(removed.status());
    marked_coordinator_.clear();
  }
  JobState known;
  NodeRecord self;
  {
    const std::lock_guard lock(shared_->mutex);
    known = shared_->view.known();
    self = shared_->view.mine().record;
  }
  // The rosters that an earlier coordinator had are not in this store.
  known.roster_number = -1;
  role_.emplace(CoordinatorRole::Options{.self = self,
                                         .job = options_.job,
                                         .coordinator = {.last_call_timeout = options_.last_call_timeout,
                                                         .silent_timeout = options_.silent_timeout},
                                         .secret = options_.secret,
                                         .witness = options_.witness,
                                         .rpc_timeout = rpc_timeout()},
                std::move(known), *client);
  store_ = *client;
  log_info("this node is the coordinator, at {}", own_.address);
  if (const Status status = role_->update(); !status.ok()) return drop(status);
  Finding finding;
  finding.store = *std::move(client);
  finding.job_state = role_->job_state();
  join(std::move(finding));
}

void MeetingThread::step_down() {
  role_->step_down();
  role_.reset();
  store_.reset();
}

void MeetingThread::find_coordinator() {
  const std::chrono::milliseconds pause = !store_                    ? kSearchPause
                                          : !role_ || is_candidate() ? kCandidatePause
                                                                     : kWaitingPause;
  if (is_too_soon(searched_at_, pause)) return;
  JobState known;
  bool leaving = false;
  {
    const std::lock_guard lock(shared_->mutex);
    known = shared_->view.known();
    leaving = shared_->leaving;
  }
  if (leaving) return;
  if (known.round.number >= 0 && search_nodes(known) && !is_candidate()) return;
  const bool is_member =
      std::any_of(known.round.nodes.begin(), known.round.nodes.end(), [&](const auto& node) { return node.id == id_; });
  if (search_endpoints(known)) return;
  if (!store_ && !is_member && known.round.number < 0) become_first_coordinator();
}

// The nodes that it knows may all have been left behind: the others may have gone on without them.
bool MeetingThread::is_candidate() const { return role_ && !role_->coordinator().has_quorum(); }

// Joins the coordinator among the last round's nodes, or becomes it. False: there is none.
bool MeetingThread::search_nodes(const JobState& known) {
  auto outcome = search_.search_nodes(known, id_, role_ && role_->coordinator().has_quorum());
  if (outcome.kind == PlaceChoice::Kind::coordinate && !role_) {
    store_.reset();
    become_coordinator();
    return true;
  }
  if (outcome.kind != PlaceChoice::Kind::join) return outcome.kind == PlaceChoice::Kind::coordinate;
  if (store_ && outcome.finding.job_state.coordinator.id == coordinator_id_) return true;
  if (role_) step_down();
  join(std::move(outcome.finding));
  return true;
}

bool MeetingThread::search_endpoints(const JobState& known) {
  for (std::size_t i = 0; i < options_.endpoints.size(); ++i) {
    // Of several launchers that started at the same time, the one at the first endpoint becomes the coordinator.
    const bool is_later = own_.endpoint >= 0 && static_cast<int>(i) >= own_.endpoint;
    if (role_ && is_later && known.round.number < 0) return false;
    if (static_cast<int>(i) == own_.endpoint) continue;
    const auto& endpoint = options_.endpoints[i];
    Finding finding = search_.probe(endpoint.host, endpoint.port);
    const bool is_meeting = finding.place.kind == Place::Kind::meeting && finding.place.term >= known.term;
    if (is_meeting && finding.job_state.coordinator.id != id_) {
      if (store_ && finding.job_state.coordinator.id == coordinator_id_) return true;
      if (role_) step_down();
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
    mark_own_store("");
    const std::lock_guard lock(shared_->mutex);
    shared_->address = own_.address;
    shared_->view.set_address(own_.address);
  }
  if (Clock::now() - began_at_ >= own_.endpoint * kEndpointHead) become_coordinator();
}

}  // namespace lockstep::launch
