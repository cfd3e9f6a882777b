// Which ranks share a host.
#pragma once

#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"
#include "rendezvous/member_record.h"

namespace lockstep {

// Whether it is worth trying: LOCKSTEP_HOST_ID does not forbid it, and both are in one network namespace, as far as
// that is known.
bool may_share_host(const MemberRecord& peer, const MemberRecord& self);

// Whether `peer` is on this host: its Unix listener can be reached. Returns the connection; none if the name does not
// exist in this network namespace, belongs to another user, or LOCKSTEP_HOST_ID forbids it.
Result<UniqueFd> probe(const MemberRecord& peer, const MemberRecord& self, Deadline deadline);

// Whether the process at the other end of a Unix socket belongs to this user, as the kernel reports.
Status check_user(int unix_fd);
// Whether the process at the other end of a Unix socket may be `peer`. The pid is compared only if
// both are in one pid namespace; otherwise the same user is sufficient.
Status check_credentials(int unix_fd, const MemberRecord& peer, const MemberRecord& self);

// A label for each rank, equal for ranks of one host. first_reached[r]: the lowest rank that r reached, itself
// included. That is the first rank of its host; a rank whose first one has itself reached a lower one is a host of its
// own. Pure: every rank computes the same.
std::vector<int> partition_into_hosts(const std::vector<int>& first_reached);

}  // namespace lockstep
