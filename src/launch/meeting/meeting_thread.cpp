#include "launch/meeting/meeting_thread.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

// What TcpStore grants a server beyond a call's deadline.
constexpr std::chrono::milliseconds kAnswerGrace = 2s;
constexpr auto kCallHomePause = 2s;

}  // namespace

MeetingThread::MeetingThread(const StoreMeetingOptions& options, OwnStore own, MeetingShared* shared)
    : options_(options),
      id_(shared->board.mine().record.id),
      shared_(shared),
      own_(std::move(own)),
      search_(options.secret, options.silent_timeout / 4),
      thread_([this] { run(); }) {}

MeetingThread::~MeetingThread() { thread_.join(); }

Deadline MeetingThread::rpc_deadline() const {
  return Deadline::after(std::max(options_.silent_timeout - kAnswerGrace, std::chrono::milliseconds(100)));
}

bool MeetingThread::is_quiet(Clock::time_point& last, std::chrono::milliseconds pause) const {
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
    const auto version = shared_->board.version();
    const bool leaving = shared_->leaving;
    shared_->changed.wait_for(lock, options_.tick,
                              [&] { return shared_->board.version() != version || shared_->leaving != leaving; });
  }
}

// True once nobody needs this thread any more.
bool MeetingThread::may_end() {
  {
    const std::lock_guard lock(shared_->mutex);
    if (!shared_->leaving) return false;
    if (!leaving_since_) leaving_since_ = Clock::now();
    const bool told = store_ != nullptr && announced_ == shared_->board.version();
    const bool patient = Clock::now() - *leaving_since_ < options_.linger;
    if (store_ != nullptr && patient && (!told || (keeper_ && !keeper_->is_alone()))) return false;
  }
  if (store_) {
    const std::string will = fmt::format("{}{}/{}", kGonePrefix, id_, connection_);
    const Status withdrawn = store_->withdraw_last_will(will, Deadline::after(100ms));
    if (!withdrawn.ok()) log_debug("{}", withdrawn.message());
  }
  return true;
}

void MeetingThread::tick() {
  if (keeper_ && follow_move()) return;
  if (keeper_) {
    if (const Status kept = keep(); !kept.ok()) drop(kept);
  }
  if (store_) attend();
  const bool is_settled = store_ && hall_official_ && (!keeper_ || keeper_->has_quorum());
  const bool may_find_earlier = keeper_ && hall_round_ < 0 && own_.endpoint > 0;
  if (!is_settled || may_find_earlier) look_around();
  if (keeper_ && hall_official_ && hall_round_ >= 0 && !is_quiet(called_home_at_, kCallHomePause)) {
    for (std::size_t i = 0; i < options_.endpoints.size(); ++i) {
      if (static_cast<int>(i) != own_.endpoint) search_.call_home(options_.endpoints[i], keeper_->hall(), own_.address);
    }
  }
}

void MeetingThread::attend() {
  Status status = beat_and_announce();
  if (status.ok()) status = read_hall();
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
    version = shared_->board.version();
    if (version == announced_) return {};
    state = shared_->board.announcement(connection_, hall_round_);
  }
  LOCKSTEP_RETURN_IF_ERROR(store_->set(kNodePrefix + id_, format(state), rpc_deadline()));
  announced_ = version;
  return {};
}

Status MeetingThread::read_hall() {
  const auto stamp = read_now(*store_, kStampKey, rpc_deadline());
  if (!stamp.ok()) return stamp.status();
  const auto now = Clock::now();
  if (!*stamp) return Status(StatusCode::closed, "the meeting is no longer kept there");
  if (**stamp == stamp_) {
    if (now - stamp_changed_at_ <= options_.silent_timeout) return {};
    return Status(StatusCode::timed_out, fmt::format("the keeper of the meeting in {} is silent", store_->describe()));
  }
  stamp_ = **stamp;
  stamp_changed_at_ = now;
  const std::string version = stamp_.substr(0, stamp_.find(' '));
  if (version == hall_version_) return {};
  const auto bytes = read_now(*store_, kHallKey, rpc_deadline());
  if (!bytes.ok()) return bytes.status();
  if (!*bytes) return Status(StatusCode::closed, "the meeting is no longer kept there");
  const auto hall = parse_hall_state(**bytes);
  if (!hall.ok()) return hall.status();
  hall_version_ = version;
  hall_round_ = hall->round.number;
  hall_official_ = hall->official;
  hall_roster_ = hall->roster_number;
  keeper_id_ = hall->keeper.id;
  const std::lock_guard lock(shared_->mutex);
  shared_->board.apply(*hall);
  shared_->problem.clear();
  shared_->changed.notify_all();
  return {};
}

Status MeetingThread::read_refusal() {
  {
    const std::lock_guard lock(shared_->mutex);
    if (!shared_->board.mine().wants_round) return {};
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
    newest = shared_->board.newest_roster_number();
    if (newest > hall_roster_ && newest > offered_roster_) offer = shared_->board.roster();
  }
  if (offer) {
    LOCKSTEP_RETURN_IF_ERROR(store_->set(kRosterPrefix + id_, *offer, rpc_deadline()));
    offered_roster_ = newest;
  }
  if (hall_roster_ <= newest) return {};
  const auto roster = read_now(*store_, kRosterKey, rpc_deadline());
  if (!roster.ok() || !*roster) return roster.status();
  const std::lock_guard lock(shared_->mutex);
  shared_->board.offer_roster(**roster);
  return {};
}

void MeetingThread::drop(const Status& why) {
  log_info("lost the meeting: {}", why.message());
  store_.reset();
  keeper_.reset();
  hall_official_ = false;
  looked_at_ = {};
  const std::lock_guard lock(shared_->mutex);
  shared_->problem = why.message();
}

void MeetingThread::join(Finding finding) {
  store_ = std::move(finding.store);
  keeper_id_ = finding.hall.keeper.id;
  hall_official_ = finding.hall.official;
  hall_round_ = finding.hall.round.number;
  hall_version_.clear();
  stamp_.clear();
  stamp_changed_at_ = Clock::now();
  hall_roster_ = -1;
  offered_roster_ = -1;
  announced_ = 0;
  ++connection_;
  log_info("meeting the other nodes in {}", store_->describe());
  const auto will =
      store_->set_last_will(fmt::format("{}{}/{}", kGonePrefix, id_, connection_), "gone", rpc_deadline());
  if (!will.ok()) return drop(will.status());
  attend();
}

}  // namespace lockstep::launch
