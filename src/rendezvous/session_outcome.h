// Whether a group that is being formed has failed: one reason, the same on all ranks.
//
// The reason is stored under one key of the session. A rank that fails writes it there; so does the store, as last
// will, when a process ends. If the store has no last wills, processes of this machine are looked up by pid instead.
// Used by one thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/status.h"
#include "rendezvous/member_record.h"
#include "rendezvous/session_store.h"

namespace lockstep {

// The failure that is recorded when the process of `member` has ended.
FailureRecord ended(const MemberRecord& member);

class SessionOutcome {
 public:
  // `store` must outlive this.
  SessionOutcome(SessionStore& store, std::string session);

  // <session>/<name>
  std::string key(const std::string& name) const { return session_ + "/" + name; }
  std::string key(const std::string& name, int rank) const;
  const std::string& session() const { return session_; }
  SessionStore& store() { return store_; }

  // Sets the last will.
  Status begin();
  // The members that this rank watches: it looks them up by pid, and rank 0 waits for them to read the reason of a
  // failure.
  void watch(std::vector<MemberRecord> members) { watched_ = std::move(members); }

  // Ok while no rank has failed. One round trip.
  Status check();
  // The process of `member` has ended. Returns the reason that all ranks see.
  Status record_end_of(const MemberRecord& member) { return record(ended(member)); }
  // Waits for all keys, with periodic checks; returns the failure, or timed_out when `until` has passed.
  Status await(std::span<const std::string> keys, Deadline until);

  // Records `why` unless there is a reason already. Returns the reason that all ranks see.
  Status decide(const Status& why);
  // Ends the session: decides, ensures that the others can read the reason, withdraws the will.
  // Rank 0, whose process may serve the store, waits up to 0.5 s until the others have read it, and removes all other
  // keys if they have.
  Status conclude(const Status& why);
  // The rank is done: its end no longer affects the session.
  void withdraw();

 private:
  Status read_record();
  Status record(const FailureRecord& failure);
  void confirm_or_wait();

  SessionStore& store_;
  const std::string session_;
  bool has_wills_ = false;
  std::vector<MemberRecord> watched_;
  std::optional<FailureRecord> failure_;
};

}  // namespace lockstep
