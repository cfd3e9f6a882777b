// How ranks agree that they form one group now, and not with what an earlier run left behind.
//
// Every rank appends a claim with a fresh nonce. Rank 0 makes a fresh session and invites every
// claim that it finds, under a key named by the claim's nonce; a process that lives accepts under a
// key named by the session. What an earlier run left never answers, and nothing that it wrote is
// ever read: all later keys are named by nonces and the session. Two processes that live and claim
// one rank are both invited, and the second to accept finds the first.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/base/status.h"
#include "rendezvous/member_record.h"
#include "rendezvous/session_outcome.h"
#include "rendezvous/session_store.h"

namespace lockstep {

struct Agreement {
  std::unique_ptr<SessionOutcome> fate;
  std::vector<MemberRecord> members;  // by rank
};

// Waits for all ranks of store.self().world_size, until the store's deadline. After an error
// nothing is left to do: the others were told. `store` must outlive the result.
//   timed_out       names the ranks that did not come
//   already_exists  two processes claim one rank; names both
//   mismatch        ranks have different world sizes; names both
//   peer_lost       a process ended meanwhile, or the store did
Result<Agreement> agree(SessionStore& store);

}  // namespace lockstep
