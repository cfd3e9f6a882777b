// Rank 0's part of the agreement: finds the living claims, one for each rank.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/status.h"
#include "rendezvous/agreement.h"
#include "rendezvous/death_watch.h"

namespace lockstep {

class Leader {
 public:
  explicit Leader(SessionStore& store);
  Result<Agreement> run();

 private:
  using Snapshot = std::map<std::string, std::string>;

  Result<std::vector<MemberRecord>> gather();
  Status give_up(const Status& why);
  // Reads everything in the store and invites new claims.
  Status scan(const Snapshot& snapshot);
  Status consider(const MemberRecord& claim, const Snapshot& snapshot);
  Status check_for_another_leader(const Snapshot& snapshot) const;
  Status missing() const;

  SessionStore& store_;
  DeathWatch watch_;
  std::unique_ptr<SessionOutcome> outcome_;
  std::set<std::string> invited_;                // nonces
  std::map<int, MemberRecord> latest_;           // by rank: the latest living claim
  std::map<int, MemberRecord> accepted_;         // by rank
  std::vector<std::string> keys_of_claims_;      // of all other ranks
  std::vector<std::string> keys_of_acceptance_;  // of all other ranks
};

}  // namespace lockstep
