// Collects what the ranks of this node record, for `lockstep run --trace`, and writes the timeline at the end.
//
// The rings of a rank hold its latest seconds; the collector copies what is new several times per second, which costs
// the ranks nothing. It keeps the latest operations and spans of all processes, at most `kept`, which limits its memory
// and the file to some hundred megabytes: when there are more, the older half is dropped.
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
  static constexpr std::size_t kKept = 1'000'000;
  static constexpr int kPeriodMs = 200;

  // Checks that the file can be written, and creates it.
  static Result<std::unique_ptr<TraceCollector>> create(const std::string& path, std::size_t kept = kKept);

  // A rank has started. `memory` must live until ended(). `name`: "worker 0"; empty: its rank in the world.
  void started(const record::RecordMemory& memory, const std::string& name);
  // The process that used `memory` has ended; `how`: "signal 9 (SIGKILL)", empty if it was successful.
  void ended(const record::RecordMemory& memory, const std::string& how);
  // Reads what is new, unless the last time was less than kPeriodMs ago.
  void poll();
  // Writes the file.
  Status write();
  // After write(): what is not in the file, as a sentence for the user; empty: nothing.
  std::string describe_dropped() const;

 private:
  struct Source {
    const record::RecordMemory* memory;  // null: it has ended
    record::RecordReader reader;
    record::TracedRank rank;
  };
  TraceCollector(std::string path, std::size_t kept) : path_(std::move(path)), kept_(kept) {}
  static void read(Source& source);
  std::size_t count() const;
  // Drops older records if there are too many.
  void limit();
  void drop_older_half();

  const std::string path_;
  const std::size_t kept_;
  std::uint64_t dropped_ = 0;                     // records of all processes
  std::uint64_t overwritten_ = 0;                 // records that were not read in time
  std::size_t processes_gone_ = 0;                // of which nothing is left
  std::vector<std::unique_ptr<Source>> sources_;  // of all processes that were started
  Deadline next_ = Deadline::after(Deadline::Duration::zero());
};

}  // namespace lockstep::launch
