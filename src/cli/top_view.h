// What `lockstep top` shows, as lines of text. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/process_usage.h"
#include "record/record_reader.h"

namespace lockstep::cli {

struct JobPicture {
  std::string command = {};
  int launcher = 0;
  std::vector<record::RankRecord> ranks = {};       // by rank
  std::map<std::int64_t, ProcessUsage> usage = {};  // by pid
  std::int64_t now_ns = 0;                          // CLOCK_MONOTONIC
};

struct Screen {
  std::size_t columns = 100;
  std::size_t rows = 0;  // 0: as many as are needed
  bool colour = false;
};

// The state of the job in one sentence: "training: step 1204, 14.7 steps/s", "waiting for 3.1 s: all_reduce #17 of
// 'world' waits for rank 2", "failed: ...".
std::string state_sentence(const JobPicture& picture);

// State, straggler, and one line for each rank; no line is longer than the screen is wide. If the ranks do not fit,
// those that the others wait for come first, and the last line counts the rest.
std::vector<std::string> top_lines(const JobPicture& picture, const Screen& screen);

}  // namespace lockstep::cli
