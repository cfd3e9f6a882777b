// What a rank reports of its progress, and what follows from the reports of all ranks. Pure functions.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "lockstep/base/status.h"
#include "mpi/channel.h"

namespace lockstep::mpi {

// One rank's progress in one group, as it is kept in the store.
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

// Whether this rank's oldest collective can still succeed, as far as the reports (by rank, without this one's and
// missing ones) show. Ok: no report contradicts it.
//   peer_lost   a rank has left the group without having issued it
//   mismatch    another rank called another operation with the same number: it waits in it too, or MPI has just
//               completed it there; names both
//   timed_out   only if `expired`: names the ranks that have not issued it
Status check_reports(const std::string& group, int rank, int size, const ChannelProgress& mine,
                     const std::map<int, Report>& others, bool expired, std::chrono::milliseconds waited);

}  // namespace lockstep::mpi
