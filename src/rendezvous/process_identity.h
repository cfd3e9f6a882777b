// Who this process is, and whether another process of this machine is still there.
#pragma once

#include <string>

#include "rendezvous/member_record.h"

namespace lockstep {

// A claim of `rank`, with a fresh nonce and a fresh, unguessable name for the Unix listener.
MemberRecord claim_rank(int rank, int world_size, const std::string& host_id);

// True if the process of `record` has ended (a zombie counts) and this process can tell: it sees
// the same pids. False where it is alive, or where nothing can be said.
bool known_to_have_ended(const MemberRecord& record, const MemberRecord& self);

}  // namespace lockstep
