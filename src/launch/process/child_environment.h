// The environment variables of a rank.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/meeting/node_meeting.h"

namespace lockstep::launch {

// For elastic jobs only.
struct ElasticPlace {
  int min_ranks = 1;
  int max_ranks = 1;
  std::string roster_file;
  std::string attester = {};  // where this launcher attests the ends of its ranks; empty: nowhere
  std::string witness = {};   // "host:port"; empty: none
  bool newcomer = false;      // joins a running job
};

// Everything that one rank needs to know.
struct RankPlace {
  int local_rank = 0;
  int nproc = 1;  // of this node
  std::string role;
  std::string run_id;
  int restarts = 0;
  int max_restarts = 0;
  bool store_is_served = true;
  std::string secret;            // empty: in a file that the environment names, or there is none
  int threads = 1;               // the rank's share of the cores
  std::string error_file;        // for Lockstep's crash report
  std::string torch_error_file;  // for the error file of torch's @record
  std::string record = {};       // of the recorder's memory (record/record_memory.h); empty: none
  std::optional<ElasticPlace> elastic;
};

// "NAME=value" for each: `inherited` (the same form) without variables of an outer launcher, plus the rank's own.
// OMP_NUM_THREADS and OPENBLAS_NUM_THREADS only if the user did not set them. Pure.
std::vector<std::string> child_environment(const std::vector<std::string>& inherited, const Round& round,
                                           const RankPlace& place);

// environ(7) as it is now.
std::vector<std::string> current_environment();

}  // namespace lockstep::launch
