// How living ranks agree to form one group, independent of keys that an earlier run left in the store.
//
// Every rank appends a claim with a fresh nonce. Rank 0 creates a fresh session and invites every claim that it finds,
// under a key named by the claim's nonce; a living process accepts under a key named by the session. Processes of an
// earlier run never answer, and nothing that they wrote is ever read: all later keys are named by nonces and the
// session. Two living processes that claim one rank are both invited, and the second to accept finds the first.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/base/status.h"
#include "rendezvous/member_record.h"
#include "rendezvous/session_outcome.h"
#include "rendezvous/session_store.h"

namespace lockstep {

struct Agreement {
  std::unique_ptr<SessionOutcome> outcome;
  std::vector<MemberRecord> members;  // by rank
};

// Waits for all ranks of store.self().world_size, until the store's deadline. After an error
// nothing is left to do: the others were notified. `store` must outlive the result.
//   timed_out       names the missing ranks
//   already_exists  two processes claim one rank; names both
//   mismatch        ranks have different world sizes; names both
//   peer_lost       a process ended meanwhile, or the store did
Result<Agreement> agree(SessionStore& store);

}  // namespace lockstep
