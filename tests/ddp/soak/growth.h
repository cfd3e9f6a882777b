// Whether a process's numbers grow from round to round.
#pragma once

#include <string>
#include <vector>

#include "ddp/soak/usage.h"

namespace lockstep::soak {

// One number of a process over the rounds after the warm-up, which is the first quarter of them.
struct Growth {
  double begin = 0;      // median of the first third
  double end = 0;        // median of the last third
  double per_round = 0;  // median of the slopes between all pairs of rounds (Theil and Sen): single jumps do not count
  double limit = 0;      // of per_round
  bool grows = false;    // per_round exceeds the limit; with a limit of 0 also if end exceeds begin
};

// Of one column in `rounds`, of which there must be at least 4.
Growth growth_of(const std::vector<Usage>& rounds, std::size_t column);

// A table of all columns of all processes: rounds[r][i] is process r in round i.
std::string growth_table(const std::vector<std::vector<Usage>>& rounds);
// What grows, one line each: "rank 1: descriptors grow by 1.00 per round ...". Empty if nothing does.
std::string growth_report(const std::vector<std::vector<Usage>>& rounds);

}  // namespace lockstep::soak
