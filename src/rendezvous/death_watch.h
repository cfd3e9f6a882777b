// Distinguishes processes that end while a group is being formed from those that an earlier run lost.
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
  // `gone`: its last will is in the store. A process that ended before first_scan_done() belongs to an earlier run; one
  // that ends later was meant to be a member of this group.
  Verdict judge(const MemberRecord& claim, bool gone) {
    if (ended_earlier_.contains(claim.nonce)) return Verdict::ended_earlier;
    if (!gone && !known_to_have_ended(claim, self_)) return Verdict::lives;
    if (first_scan_done_) return Verdict::ended_now;
    ended_earlier_.insert(claim.nonce);
    return Verdict::ended_earlier;
  }
  void first_scan_done() { first_scan_done_ = true; }

 private:
  const MemberRecord& self_;
  bool first_scan_done_ = false;
  std::set<std::string> ended_earlier_;  // nonces
};

}  // namespace lockstep
