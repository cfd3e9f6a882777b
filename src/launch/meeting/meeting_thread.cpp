#include "launch/meeting/meeting_thread.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

// The time that TcpStore allows a server beyond a call's deadline.
constexpr std::chrono::milliseconds kAnswerGrace = 2s;
constexpr auto kRedirectInterval = 2s;

}  // namespace

MeetingThread::MeetingThread(const StoreMeetingOptions& options, OwnStore own, MeetingShared* shared)
    : options_(options),
      id_(shared->view.mine().record.id),
      shared_(shared),
      own_(std::move(own)),
      search_(options.secret, options.silent_timeout / 4),
      thread_([this] { run(); }) {}

MeetingThread::~MeetingThread() { thread_.join(); }

Deadline MeetingThread::rpc_deadline() const {
  return Deadline::after(std::max(options_.silent_timeout - kAnswerGrace, std::chrono::milliseconds(100)));
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
    shared_->changed.wait_for(lock, options_.tick,
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
    if (store_ != nullptr && patient && (!announced || (coordinator_ && !coordinator_->is_alone()))) return false;
  }
  if (store_) {
    const std::string will = fmt::format("{}{}/{}", kGonePrefix, id_, connection_);
    const Status withdrawn = store_->withdraw_last_will(will, Deadline::after(100ms));
    if (!withdrawn.ok()) log_debug("{}", withdrawn.message());
  }
  return true;
}

void MeetingThread::tick() {
  if (coordinator_ && follow_move()) return;
  if (coordinator_) {
    if (const Status status = coordinate(); !status.ok()) drop(status);
  }
  if (store_) exchange();
  const bool is_settled = store_ && state_official_ && (!coordinator_ || coordinator_->has_quorum());
  const bool may_find_earlier = coordinator_ && state_round_ < 0 && own_.endpoint > 0;
  if (!is_settled || may_find_earlier) find_coordinator();
  if (coordinator_ && state_official_ && state_round_ >= 0 && !is_too_soon(redirected_at_, kRedirectInterval)) {
    for (std::size_t i = 0; i < options_.endpoints.size(); ++i) {
      if (static_cast<int>(i) != own_.endpoint)
        search_.redirect(options_.endpoints[i], coordinator_->job_state(), own_.address);
    }
  }
}

void MeetingThread::exchange() {
  Status status = beat_and_announce();
  if (status.ok()) status = read_job_state();
  if (status.ok()) status = read_refusal();
  if (status.ok()) status = exchange_rosters();
  if (!status.ok()) drop(status);
}

Status MeetingThread::beat_and_announce() {
  LOCKSTEP_RETURN_IF_ERROR(store_->set(kBeatPrefix + id_, std::to_string(++beat_), rpc_deadline()));
  std::uint64_t version = 0;
  NodeState state;
  {
    const std::lock_guard lock(shared_->mutex);
    version = shared_->view.version();
    if (version == announced_) return {};
    state = shared_->view.announcement(connection_, state_round_);
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
  state_version_ = version;
  state_round_ = state->round.number;
  state_official_ = state->official;
  state_roster_ = state->roster_number;
  coordinator_id_ = state->coordinator.id;
  const std::lock_guard lock(shared_->mutex);
  shared_->view.apply(*state);
  shared_->problem.clear();
  shared_->changed.notify_all();
  return {};
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
  store_.reset();
  coordinator_.reset();
  state_official_ = false;
  searched_at_ = {};
  const std::lock_guard lock(shared_->mutex);
  shared_->problem = why.message();
}

void MeetingThread::join(Finding finding) {
  store_ = std::move(finding.store);
  coordinator_id_ = finding.job_state.coordinator.id;
  state_official_ = finding.job_state.official;
  state_round_ = finding.job_state.round.number;
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

}  // namespace lockstep::launch
