// The identity of this process, and whether another process of this machine is still alive.
#pragma once

#include <string>

#include "rendezvous/member_record.h"

namespace lockstep {

// A claim of `rank`, with a fresh nonce and a fresh, unguessable name for the Unix listener.
MemberRecord claim_rank(int rank, int world_size, const std::string& host_id);

// True if the process of `record` has ended (a zombie counts) and this process can detect it: it sees
// the same pids. False if it is alive, or if that is unknown.
bool known_to_have_ended(const MemberRecord& record, const MemberRecord& self);

}  // namespace lockstep
