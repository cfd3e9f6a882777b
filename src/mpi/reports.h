// What a rank tells the others of its standing, and what follows from all of them. Pure functions.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "lockstep/base/status.h"
#include "mpi/channel.h"

namespace lockstep::mpi {

// One rank's standing in one group, as it stands in the store.
struct Report {
  std::uint64_t issued = 0;
  std::uint64_t front = 0;
  bool left = false;  // destroyed the group
  std::string who;    // "rank 3 (host node7, pid 4711)"
  std::string text;   // of operation `front`
  std::uint64_t done = 0;
  std::string done_text = {};  // of operation `done`

  friend bool operator==(const Report&, const Report&) = default;
};
std::string format(const Report& report);
// protocol_error for what no rank of this version writes.
Result<Report> parse_report(std::string_view text);

// Whether this rank's oldest collective can still succeed, as far as the reports (by rank, this one's and missing ones
// left out) tell. Ok: nothing is known against it.
//   peer_lost   a rank has left the group without having issued it
//   mismatch    another rank called another operation with the same number: it waits in it too, or MPI has just
//               completed it there; names both
//   timed_out   only if `expired`: who has not issued it
Status judge(const std::string& group, int rank, int size, const Standing& mine, const std::map<int, Report>& others,
             bool expired, std::chrono::milliseconds waited);

}  // namespace lockstep::mpi
