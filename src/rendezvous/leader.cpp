#include "rendezvous/leader.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/random.h"
#include "rendezvous/missing_ranks.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kScanInterval{25};
// Rank 0 decides slightly before its deadline, so that ranks that started at the same time can still read which ranks
// are missing.
constexpr std::chrono::milliseconds kDecisionMargin{500};

Deadline decision_time(const SessionStore& store) {
  const auto margin = std::min<Deadline::Duration>(kDecisionMargin, store.deadline().remaining() / 10);
  return Deadline::at(store.deadline().when() - margin);
}

}  // namespace

Leader::Leader(SessionStore& store)
    : store_(store), watch_(store.self()), outcome_(std::make_unique<SessionOutcome>(store, random_hex(16))) {
  store_.set_leader(store_.self());
  for (int rank = 1; rank < store_.self().world_size; ++rank) {
    keys_of_claims_.push_back(SessionStore::claim_key(rank));
    keys_of_acceptance_.push_back(outcome_->key("accepted", rank));
  }
}

Result<Agreement> Leader::run() {
  LOCKSTEP_RETURN_IF_ERROR(outcome_->begin());
  // For ranks that wait for an invitation: they check whether this claim's process is still alive.
  const std::string will = SessionStore::gone_key(store_.self().nonce);
  if (const auto left = store_.set_last_will(will, ""); !left.ok()) return left.status();
  auto members = gather();
  (void)store_.withdraw_last_will(will);
  if (!members.ok()) return give_up(members.status());
  outcome_->watch(*members);
  return Agreement{std::move(outcome_), *std::move(members)};
}

// Ranks that arrived since the last scan must learn of it too: by an invitation, or, if they arrive later still, by the
// record that replaces the will.
Status Leader::give_up(const Status& why) {
  const Status reason = outcome_->decide(why);
  (void)store_.set(SessionStore::gone_key(store_.self().nonce), format(FailureRecord{reason, -1}));
  if (const auto snapshot = store_.list(""); snapshot.ok()) (void)scan(*snapshot);
  std::vector<MemberRecord> invited;
  for (const auto& [rank, claim] : latest_) invited.push_back(claim);
  outcome_->watch(std::move(invited));
  return outcome_->conclude(reason);
}

Result<std::vector<MemberRecord>> Leader::gather() {
  const Deadline until = decision_time(store_);
  const std::string own_claim = SessionStore::claim_key(0);
  const auto earlier = store_.list("");
  if (!earlier.ok()) return earlier.status();
  LOCKSTEP_RETURN_IF_ERROR(scan(*earlier));
  watch_.first_scan_done();
  if (const auto old = earlier->find(own_claim); old != earlier->end() && !parse_member_records(old->second).ok()) {
    LOCKSTEP_RETURN_IF_ERROR(store_.remove(own_claim));
  }
  LOCKSTEP_RETURN_IF_ERROR(store_.append(own_claim, format(store_.self())));

  while (true) {
    const auto snapshot = store_.list("");
    if (!snapshot.ok()) return snapshot.status();
    LOCKSTEP_RETURN_IF_ERROR(outcome_->check());
    LOCKSTEP_RETURN_IF_ERROR(scan(*snapshot));
    if (accepted_.size() == keys_of_acceptance_.size()) break;
    if (until.expired()) return missing();
    const bool all_claimed = std::all_of(keys_of_claims_.begin(), keys_of_claims_.end(),
                                         [&](const std::string& key) { return snapshot->contains(key); });
    const auto interval = std::max(kScanInterval, store_.check_interval(kScanInterval) / 4);
    const auto there = store_.await(all_claimed ? keys_of_acceptance_ : keys_of_claims_, interval);
    if (!there.ok()) return there.status();
  }

  std::vector<MemberRecord> members{store_.self()};
  std::string bytes = format(store_.self());
  for (const auto& [rank, record] : accepted_) {
    members.push_back(record);
    bytes += format(record);
  }
  LOCKSTEP_RETURN_IF_ERROR(store_.set(outcome_->key("members"), bytes));
  return members;
}

Status Leader::scan(const Snapshot& snapshot) {
  for (const auto& key : keys_of_acceptance_) {
    const auto entry = snapshot.find(key);
    if (entry == snapshot.end()) continue;
    const auto record = parse_member_records(entry->second);
    if (!record.ok()) return record.status();
    if (record->size() == 1) accepted_.insert_or_assign(record->front().rank, record->front());
  }
  // All are invited, even if the group has already failed, because only invited ranks learn the reason.
  Status failure = check_for_another_leader(snapshot);
  constexpr std::string_view kClaims = "claim/";
  for (auto entry = snapshot.lower_bound(std::string(kClaims));
       entry != snapshot.end() && entry->first.starts_with(kClaims); ++entry) {
    // A claim that cannot be parsed is of another version; its rank counts as missing.
    const auto claims = parse_member_records(entry->second);
    if (!claims.ok()) continue;
    for (const auto& claim : *claims) {
      if (claim.nonce == store_.self().nonce) continue;
      const Status considered = consider(claim, snapshot);
      if (failure.ok()) failure = considered;
    }
  }
  return failure;
}

Status Leader::consider(const MemberRecord& claim, const Snapshot& snapshot) {
  const auto verdict = watch_.judge(claim, snapshot.contains(SessionStore::gone_key(claim.nonce)));
  if (verdict == DeathWatch::Verdict::ended_earlier) return {};
  if (verdict == DeathWatch::Verdict::ended_now) return outcome_->record_end_of(claim);
  if (claim.rank > 0 && claim.rank < store_.self().world_size) latest_.insert_or_assign(claim.rank, claim);
  if (!invited_.insert(claim.nonce).second) return {};
  const Invitation invitation{outcome_->session(), store_.self()};
  return store_.set_if_absent(SessionStore::invitation_key(claim.nonce), format(invitation)).status();
}

Status Leader::check_for_another_leader(const Snapshot& snapshot) const {
  const auto entry = snapshot.find(SessionStore::invitation_key(store_.self().nonce));
  if (entry == snapshot.end()) return {};
  const auto invitation = parse_invitation(entry->second);
  if (!invitation.ok()) return invitation.status();
  const Status conflict = claimed_twice(invitation->leader, store_.self());
  // The other leader is alive, because it sent an invitation; its followers must learn the reason too.
  SessionOutcome other(store_, invitation->session);
  (void)store_.set_if_absent(other.key("failed"), format(FailureRecord{conflict, -1}));
  return conflict;
}

Status Leader::missing() const {
  MissingRanks missing(store_.self().world_size);
  missing.add_present(0);
  for (const auto& [rank, record] : latest_) {
    if (accepted_.contains(rank)) {
      missing.add_present(rank);
    } else {
      missing.add_silent(rank, fmt::format("(host {}, pid {}) announced itself, but does not answer: it is stopped, or "
                                           "was part of an earlier run",
                                           record.host, record.pid));
    }
  }
  return missing.error(store_.elapsed(), store_.describe());
}

}  // namespace lockstep
