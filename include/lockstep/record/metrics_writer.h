// Metrics of a program that no `lockstep run --metrics` watches, or that writes some curves itself: the same files.
//
//   std::optional<lockstep::MetricsWriter> writer;
//   if (rank == 0) writer.emplace("runs/first");
//   ...
//   if (writer) writer->write({{"loss", mean.compute()}}, step);
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>

#include "lockstep/record/metrics.h"

namespace lockstep {

namespace record {
class MetricFiles;
}

// Writes metrics.csv, metrics.jsonl and an event file for TensorBoard in a folder, each value at once. Only one process
// of the job may write in a folder. Not thread-safe.
class MetricsWriter {
 public:
  // Creates the folder if necessary. Throws Error if the files cannot be written.
  explicit MetricsWriter(const std::string& folder);
  ~MetricsWriter();
  MetricsWriter(MetricsWriter&&) noexcept;
  MetricsWriter& operator=(MetricsWriter&&) noexcept;

  // Does not throw if the disk is full: there is a warning in the log, once, and the values are left out. `step` may go
  // back when the training has returned to a snapshot: the last value of a step counts.
  void write(std::initializer_list<Metric> metrics, std::int64_t step);

 private:
  std::unique_ptr<record::MetricFiles> files_;
  std::int64_t last_step_ = 0;
  std::int64_t generation_ = 0;  // increases when the step goes back
};

}  // namespace lockstep
