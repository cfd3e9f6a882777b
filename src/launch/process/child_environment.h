// The variables that a rank finds in its environment.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/meeting/node_meeting.h"

namespace lockstep::launch {

// What only elastic jobs have.
struct ElasticPlace {
  int min_ranks = 1;
  int max_ranks = 1;
  std::string roster_file;
  bool newcomer = false;  // joins a job that runs already
};

// All that one rank is to be told.
struct RankPlace {
  int local_rank = 0;
  int nproc = 1;  // of this node
  std::string role;
  std::string run_id;
  int restarts = 0;
  int max_restarts = 0;
  bool store_is_served = true;
  std::string secret;            // empty: the environment says it already, or there is none
  int threads = 1;               // the rank's share of the cores
  std::string error_file;        // for Lockstep's crash report
  std::string torch_error_file;  // for what torch's @record writes
  std::optional<ElasticPlace> elastic;
};

// "NAME=value" for each: `inherited` (the same form) without what an outer launcher left there, and the rank's own.
// OMP_NUM_THREADS and OPENBLAS_NUM_THREADS only where the user set none. Pure.
std::vector<std::string> child_environment(const std::vector<std::string>& inherited, const Round& round,
                                           const RankPlace& place);

// environ(7) as it is now.
std::vector<std::string> current_environment();

}  // namespace lockstep::launch
