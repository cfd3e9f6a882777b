// Collects what the ranks of this node log as metrics, for `lockstep run --metrics`, and writes the curves.
//
// It reads the ranks' records several times per second, which costs the ranks nothing, and reads that of a process that
// has ended once more, however it ended.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"
#include "record/metric_files.h"
#include "record/record_memory.h"
#include "record/record_reader.h"

namespace lockstep::launch {

// Used by one thread.
class MetricsCollector {
 public:
  static constexpr int kPeriodMs = 200;

  // Creates the folder and its files.
  static Result<std::unique_ptr<MetricsCollector>> create(const std::string& folder);

  // A process has started that will use `memory`, which must live until ended(). `round`: how often the ranks of this
  // node were started before. A process of an elastic job reports generations itself.
  void started(const record::RecordMemory& memory, int round);
  void ended(const record::RecordMemory& memory);
  // Reads what is new and writes what is complete, unless the last time was less than kPeriodMs ago.
  void poll();
  // Writes everything else.
  void finish();
  // What the user has to know (the disk is full, values were lost), each sentence once; empty: nothing.
  std::string take_trouble();

 private:
  struct Source {
    const record::RecordMemory* memory;
    int number;  // of the process in this job
    int round;
    record::RecordReader reader;
    record::RankRecord record = {};
  };
  explicit MetricsCollector(std::unique_ptr<record::MetricFiles> files) : files_(std::move(files)) {}
  void read(Source& source);

  std::unique_ptr<record::MetricFiles> files_;
  record::MetricPoints points_;
  std::vector<std::unique_ptr<Source>> sources_;  // of the processes that run
  int processes_ = 0;
  std::string lost_;  // a sentence for the user
  bool lost_reported_ = false;
  Deadline next_ = Deadline::after(Deadline::Duration::zero());
};

}  // namespace lockstep::launch
