// Which ranks share a host.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"
#include "rendezvous/member_record.h"

namespace lockstep {

// Whether `peer` is on this host: its Unix listener can be reached. False if the name does not exist in this network
// namespace, belongs to another user, or LOCKSTEP_HOST_ID forbids it.
Result<bool> probe(const MemberRecord& peer, const MemberRecord& self, Deadline deadline);

// Whether the process at the other end of a Unix socket may be `peer`. The pid is compared only if
// both are in one pid namespace; otherwise the same user is sufficient.
Status check_credentials(int unix_fd, const MemberRecord& peer, const MemberRecord& self);

// A label for each rank, equal for ranks of one host. reached[r]: the lower ranks that r reached.
// All ranks of a host reach each other; each rank, in order, joins the first host of which that is
// true. Pure: every rank computes the same.
std::vector<int> partition_into_hosts(const std::vector<std::vector<int>>& reached);

}  // namespace lockstep
