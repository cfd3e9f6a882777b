// Whether a group that is being formed still can be: one reason for failure, the same on all ranks.
//
// The reason lives under one key of the session. Whoever fails writes it there; so does the store,
// as last will, when a process ends. Where the store knows no last wills, processes of this machine
// are looked up by pid instead. Used by one thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/status.h"
#include "rendezvous/member_record.h"
#include "rendezvous/session_store.h"

namespace lockstep {

// What becomes known when the process of `member` has ended.
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

  // Leaves the last will.
  Status begin();
  // Who takes part, as far as this rank has to know: looked up by pid, and waited for when rank 0
  // has told the reason of a failure.
  void watch(std::vector<MemberRecord> members) { watched_ = std::move(members); }

  // Ok while nobody has failed. One round trip.
  Status check();
  // The process of `member` has ended. Returns the reason that all ranks see.
  Status record_end_of(const MemberRecord& member) { return record(ended(member)); }
  // Waits for all keys, checking now and then; the failure, or timed_out when `until` has passed.
  Status await(std::span<const std::string> keys, Deadline until);

  // Records `why` unless there is a reason already. Returns the reason that all ranks see.
  Status decide(const Status& why);
  // Ends the session: decides, sees to it that the others can read the reason, withdraws the will.
  // Rank 0, whose process may serve the store, waits up to 0.5 s until the others have read it.
  Status conclude(const Status& why);
  // The rank is done: its end is no longer anybody's concern here.
  void withdraw();

 private:
  Status look_for_record();
  Status record(const FailureRecord& failure);
  void tell_or_listen();

  SessionStore& store_;
  const std::string session_;
  bool has_wills_ = false;
  std::vector<MemberRecord> watched_;
  std::optional<FailureRecord> failure_;
};

}  // namespace lockstep
