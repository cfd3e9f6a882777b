// What every rank of a job does, and where its threads are: for `lockstep dump`, and for the launcher if an operation
// waits for long.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/report/stacks.h"
#include "record/record_reader.h"

namespace lockstep::launch {

// The sentences about a job: which operations wait for whom, and one line for each rank. Those that the others wait for
// come first. Pure.
struct RankActivity {
  int rank = 0;
  std::int64_t pid = 0;
  std::string text = {};  // "rank 2 (node7, pid 4715, generation 1): data loading for 3.14 s"
};
std::vector<RankActivity> describe_ranks(const std::vector<record::RankRecord>& ranks, std::int64_t now_ns);

// The rank's line, its threads, and its stacks.
std::string dump_rank(const RankActivity& rank, const StackOptions& options);

}  // namespace lockstep::launch
