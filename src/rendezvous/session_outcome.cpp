#include "rendezvous/session_outcome.h"

#include <fmt/format.h>

#include "rendezvous/process_identity.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kOutcomeCheckInterval{50};
constexpr std::chrono::milliseconds kConfirmTime{500};
// A connection to a process that died may break before the store detects the death, whose reason is more
// informative.
constexpr std::chrono::milliseconds kTimeForWills{200};

}  // namespace

FailureRecord ended(const MemberRecord& member) {
  return {Status(StatusCode::peer_lost,
                 fmt::format("{} ended, or lost its connection to the store, while the group was being formed; check "
                             "its log",
                             member.describe())),
          member.rank};
}

SessionOutcome::SessionOutcome(SessionStore& store, std::string session)
    : store_(store), session_(std::move(session)) {}

std::string SessionOutcome::key(const std::string& name, int rank) const {
  return fmt::format("{}/{}/{}", session_, name, rank);
}

Status SessionOutcome::begin() {
  const auto will = store_.set_last_will(key("failed"), format(ended(store_.self())));
  if (!will.ok()) return will.status();
  has_wills_ = *will;
  return {};
}

Status SessionOutcome::read_record() {
  const auto value = store_.peek(key("failed"));
  if (!value.ok()) return value.status();
  if (!*value) return {};
  const auto failure = parse_failure(**value);
  if (!failure.ok()) return failure.status();
  failure_ = *failure;
  return failure_->status;
}

Status SessionOutcome::record(const FailureRecord& failure) {
  const auto first = store_.set_if_absent(key("failed"), format(failure));
  if (!first.ok()) return failure.status;
  const auto parsed = parse_failure(*first);
  failure_ = parsed.ok() ? *parsed : failure;
  return failure_->status;
}

Status SessionOutcome::check() {
  if (failure_) return failure_->status;
  LOCKSTEP_RETURN_IF_ERROR(read_record());
  if (has_wills_) return {};
  for (const auto& member : watched_) {
    if (known_to_have_ended(member, store_.self())) return record_end_of(member);
  }
  return {};
}

Status SessionOutcome::await(std::span<const std::string> keys, Deadline until) {
  const auto interval = store_.check_interval(kOutcomeCheckInterval);
  while (true) {
    const auto there =
        store_.await(keys, std::chrono::milliseconds(until.poll_timeout_ms(static_cast<int>(interval.count()))));
    if (!there.ok()) return there.status();
    if (*there) return {};
    LOCKSTEP_RETURN_IF_ERROR(check());
    if (until.expired()) return Status(StatusCode::timed_out, "the time to form the group has expired");
  }
}

Status SessionOutcome::decide(const Status& why) {
  if (!failure_ && (why.code() == StatusCode::peer_lost || why.code() == StatusCode::unavailable)) {
    const std::string failed = key("failed");
    (void)store_.await(std::span(&failed, 1), kTimeForWills);
    (void)read_record();
  }
  return failure_ ? failure_->status : record({why, -1});
}

Status SessionOutcome::conclude(const Status& why) {
  const Status reason = decide(why);
  if (failure_) confirm_or_wait();
  withdraw();
  return reason;
}

void SessionOutcome::confirm_or_wait() {
  if (store_.self().rank != 0) {
    (void)store_.set(key("told", store_.self().rank), "");
    return;
  }
  std::vector<std::string> told;
  for (const auto& member : watched_) {
    if (member.rank > 0 && member.rank != failure_->gone_rank) told.push_back(key("told", member.rank));
  }
  const auto all_know = store_.await(told, kConfirmTime);
  if (!all_know.ok() || !*all_know) return;
  // A process that claims the rank of another one may still read the reason. No rank needs the other keys any more.
  const auto rest = store_.list(session_ + "/");
  if (!rest.ok()) return;
  for (const auto& [name, value] : *rest) {
    if (name != key("failed")) (void)store_.remove(name);
  }
}

void SessionOutcome::withdraw() { (void)store_.withdraw_last_will(key("failed")); }

}  // namespace lockstep
