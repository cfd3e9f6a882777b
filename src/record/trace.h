// A timeline of recorded ranks for Perfetto (ui.perfetto.dev) and chrome://tracing: the JSON of the Trace Event Format.
//
// Each rank is a process with a track for its phases, one for the buckets of DDP, and one for the collectives of each
// group. An arrow leads from the rank that arrived last at a collective to each rank that waited for it.
#pragma once

#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "record/record_reader.h"

namespace lockstep::record {

// A process that was recorded, and how it ended.
struct TracedRank {
  RankRecord record;
  std::string name = {};      // "rank 2", "worker 0"; empty: from the record
  std::string end = {};       // "killed by signal 9 (SIGKILL)"; empty: it runs, or has ended well
  std::int64_t end_ns = 0;    // CLOCK_MONOTONIC
  std::uint64_t dropped = 0;  // older records of this process, which are not in `record` any more
};

struct TraceOptions {
  std::int64_t now_ns = 0;   // operations that still run are drawn up to here
  std::int64_t from_ns = 0;  // what ended before is left out
};

// Pure. All ranks are of one machine: their times have the same origin.
std::string trace_json(std::span<const TracedRank> ranks, const TraceOptions& options);
// The same, in pieces: a timeline may be much larger than what it is made of.
void write_trace_json(std::ostream& out, std::span<const TracedRank> ranks, const TraceOptions& options);

}  // namespace lockstep::record
