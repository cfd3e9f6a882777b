#include "rendezvous/agreement.h"

#include <fmt/format.h>

#include "rendezvous/death_watch.h"
#include "rendezvous/leader.h"
#include "rendezvous/missing_ranks.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kCheckInterval{100};
// More claims than this are leftovers of many failed runs.
constexpr std::size_t kMaxClaims = 64;
constexpr std::string_view kNoAnswer =
    "announced itself, but did not answer: it has ended or is stopped, or it formed the group without this process; "
    "check that no two processes have the same rank";

class Follower {
 public:
  explicit Follower(SessionStore& store) : store_(store), watch_(store.self()) {}

  Result<Agreement> run() {
    const auto& self = store_.self();
    const std::string will = SessionStore::gone_key(self.nonce);
    // The will precedes the claim, so that no claim is ever without one.
    if (const auto left = store_.set_last_will(will, ""); !left.ok()) return left.status();
    auto invitation = wait_for_invitation();
    if (!invitation.ok()) {
      (void)store_.withdraw_last_will(will);
      return invitation.status();
    }
    store_.set_leader(invitation->leader);
    auto outcome = std::make_unique<SessionOutcome>(store_, invitation->session);
    LOCKSTEP_RETURN_IF_ERROR(outcome->begin());
    outcome->watch({invitation->leader});
    (void)store_.withdraw_last_will(will);
    auto members = accept(*invitation, *outcome);
    if (!members.ok()) return outcome->conclude(members.status());
    return Agreement{std::move(outcome), *std::move(members)};
  }

 private:
  Status write_claim() {
    const std::string key = SessionStore::claim_key(store_.self().rank);
    const auto earlier = store_.peek(key);
    if (!earlier.ok()) return earlier.status();
    if (*earlier) {
      const auto claims = parse_member_records(**earlier);
      if (!claims.ok() || claims->size() >= kMaxClaims) LOCKSTEP_RETURN_IF_ERROR(store_.remove(key));
    }
    return store_.append(key, format(store_.self()));
  }

  Result<Invitation> wait_for_invitation() {
    LOCKSTEP_RETURN_IF_ERROR(check_leader());
    watch_.first_scan_done();
    LOCKSTEP_RETURN_IF_ERROR(write_claim());
    const std::string key = SessionStore::invitation_key(store_.self().nonce);
    const auto interval = store_.check_interval(kCheckInterval);
    while (true) {
      const int slice = store_.deadline().poll_timeout_ms(static_cast<int>(interval.count()));
      const auto value = store_.await(key, std::chrono::milliseconds(slice));
      if (!value.ok()) return value.status();
      if (*value) {
        (void)store_.remove(key);
        return parse_invitation(**value);
      }
      LOCKSTEP_RETURN_IF_ERROR(check_leader());
      if (store_.deadline().expired()) return timed_out(kNoAnswer);
    }
  }

  // Rank 0 may end before it has invited this rank.
  Status check_leader() {
    const auto value = store_.peek(SessionStore::claim_key(0));
    if (!value.ok()) return value.status();
    const auto claims = parse_member_records(value->value_or(""));
    if (!claims.ok()) return {};
    for (const auto& claim : *claims) {
      const auto gone = store_.peek(SessionStore::gone_key(claim.nonce));
      if (!gone.ok()) return gone.status();
      const auto verdict = watch_.judge(claim, gone->has_value());
      if (verdict == DeathWatch::Verdict::ended_now) return reason_of(claim, gone->value_or(""));
      if (verdict == DeathWatch::Verdict::lives) store_.set_leader(claim);
    }
    return {};
  }

  // If rank 0 gave up, it left its reason; if it died, the last will is empty.
  static Status reason_of(const MemberRecord& leader, const std::string& left) {
    const auto failure = parse_failure(left);
    return failure.ok() ? failure->status : ended(leader).status;
  }

  // At the deadline: names the ranks that this rank knows to be missing; if there are none, reports `otherwise` about
  // rank 0.
  Status timed_out(std::string_view otherwise) {
    const auto claims = store_.list("claim/");
    if (!claims.ok()) return claims.status();
    MissingRanks missing(store_.self().world_size);
    for (const auto& [key, value] : *claims) {
      const auto records = parse_member_records(value);
      if (!records.ok()) continue;
      for (const auto& record : *records) missing.add_present(record.rank);
    }
    if (missing.empty()) missing.add_silent(0, otherwise);
    return missing.error(store_.elapsed(), store_.describe());
  }

  Result<std::vector<MemberRecord>> accept(const Invitation& invitation, SessionOutcome& outcome) {
    const auto& self = store_.self();
    if (invitation.leader.world_size != self.world_size) {
      return Status(
          StatusCode::mismatch,
          fmt::format("{} has world size {}, but {} has world size {}; give all ranks the same", self.describe(),
                      self.world_size, invitation.leader.describe(), invitation.leader.world_size));
    }
    const auto accepted = store_.set_if_absent(outcome.key("accepted", self.rank), format(self));
    if (!accepted.ok()) return accepted.status();
    const auto holder = parse_member_records(*accepted);
    if (!holder.ok()) return holder.status();
    if (holder->size() != 1) return Status(StatusCode::protocol_error, "an acceptance contains several records");
    if (holder->front().nonce != self.nonce) return claimed_twice(holder->front(), self);

    const std::string key = outcome.key("members");
    const Status there = outcome.await(std::span(&key, 1), store_.deadline());
    if (there.code() == StatusCode::timed_out) return timed_out("answered, but did not find all ranks in time");
    if (!there.ok()) return there;
    const auto value = store_.peek(key);
    if (!value.ok()) return value.status();
    auto members = parse_member_records(value->value_or(""));
    if (!members.ok()) return members.status();
    if (static_cast<int>(members->size()) != self.world_size || !((*members)[self.rank] == self)) {
      return Status(StatusCode::internal, "the list of members does not have this rank in its place");
    }
    return members;
  }

  SessionStore& store_;
  DeathWatch watch_;
};

}  // namespace

Result<Agreement> agree(SessionStore& store) {
  if (store.self().rank == 0) return Leader(store).run();
  return Follower(store).run();
}

}  // namespace lockstep
