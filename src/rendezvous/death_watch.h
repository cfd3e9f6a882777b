// Tells processes that end while a group is being formed from those that an earlier run lost.
#pragma once

#include <set>
#include <string>

#include "rendezvous/member_record.h"
#include "rendezvous/process_identity.h"

namespace lockstep {

class DeathWatch {
 public:
  explicit DeathWatch(const MemberRecord& self) : self_(self) {}

  enum class Verdict { lives, ended_earlier, ended_now };
  // `gone`: its last will is in the store. Until first_look_done(), whoever has ended is an earlier
  // run's; whoever ends later was to be a member of this group.
  Verdict judge(const MemberRecord& claim, bool gone) {
    if (ended_earlier_.contains(claim.nonce)) return Verdict::ended_earlier;
    if (!gone && !known_to_have_ended(claim, self_)) return Verdict::lives;
    if (first_look_done_) return Verdict::ended_now;
    ended_earlier_.insert(claim.nonce);
    return Verdict::ended_earlier;
  }
  void first_look_done() { first_look_done_ = true; }

 private:
  const MemberRecord& self_;
  bool first_look_done_ = false;
  std::set<std::string> ended_earlier_;  // nonces
};

}  // namespace lockstep
