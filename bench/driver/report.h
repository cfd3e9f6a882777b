// The results of a run, as a human-readable table and as JSON.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/driver/statistics.h"
#include "bench/worker/operation.h"

namespace lockstep::bench {

// One engine at one size.
struct Row {
  Collective collective = Collective::all_reduce;
  DType dtype = DType::f32;
  int nproc = 0;
  std::size_t bytes = 0;
  std::size_t count = 0;    // elements of the input per rank, as in nccl-tests
  std::string engine = {};  // "lockstep", "gloo", "openmpi", "mpich", "limit"
  std::string memory = {};  // "registered", "private"; for the limit "shared" or "link"
  bool warm = false;
  double p50_us = 0;
  double p99_us = 0;
  double algbw = 0;  // GB/s from p50
  double busbw = 0;
  std::size_t wrong = 0;
  std::optional<double> cpu_seconds_per_gb = {};   // of all ranks together; none for a barrier
  std::optional<RatioSummary> limit = {};          // the limit's time divided by this engine's
  std::map<std::string, RatioSummary> ratio = {};  // peer -> its time divided by Lockstep's; on Lockstep's rows only
  std::optional<double> wire_bytes = {};           // per operation, sent by the host that sent most
  std::optional<double> wire_fraction = {};        // the same, divided by the least that it has to send
};

// Column titles and the line of one row. `peers` are the columns of ratios, `wire` adds the bytes
// on the wire.
std::string table_header(const std::vector<std::string>& peers, bool wire);
std::string table_line(const Row& row, const std::vector<std::string>& peers, bool wire);

// An array with one object per row.
std::string to_json(const std::vector<Row>& rows);

// Throws BenchError.
void write_json_file(const std::string& path, const std::string& text);

}  // namespace lockstep::bench
