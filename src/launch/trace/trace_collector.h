// Collects what the ranks of this node record, for `lockstep run --trace`, and writes the timeline at the end.
//
// The rings of a rank hold its latest seconds; the collector copies what is new several times per second, which costs
// the ranks nothing. It keeps at most kKept operations and spans of each process, the latest ones.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"
#include "record/record_memory.h"
#include "record/trace.h"

namespace lockstep::launch {

// Used by one thread.
class TraceCollector {
 public:
  static constexpr std::size_t kKept = 500'000;
  static constexpr int kPeriodMs = 200;

  // Checks that the file can be written, and creates it.
  static Result<std::unique_ptr<TraceCollector>> create(const std::string& path);

  // A rank has started. `memory` must live until ended(). `name`: "worker 0"; empty: its rank in the world.
  void started(const record::RecordMemory& memory, const std::string& name);
  // The process that used `memory` has ended; `how`: "signal 9 (SIGKILL)", empty if it was successful.
  void ended(const record::RecordMemory& memory, const std::string& how);
  // Reads what is new, unless the last time was less than kPeriodMs ago.
  void poll();
  // Writes the file.
  Status write();

 private:
  struct Source {
    const record::RecordMemory* memory;  // null: it has ended
    record::RecordReader reader;
    record::TracedRank rank;
  };
  explicit TraceCollector(std::string path) : path_(std::move(path)) {}
  static void read(Source& source);

  const std::string path_;
  std::vector<std::unique_ptr<Source>> sources_;  // of all processes that were started
  Deadline next_ = Deadline::after(Deadline::Duration::zero());
};

}  // namespace lockstep::launch
