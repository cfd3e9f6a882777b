// The curves of what the program logs with log_metric(): at each step, the mean over the ranks that logged the metric.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dashboard/curve.h"
#include "record/record_reader.h"

namespace lockstep::dashboard {

class MetricCurves {
 public:
  static constexpr std::size_t kMostCurves = 32;
  // The metric that tells how much of the training is done, from 0 to 1.
  static constexpr const char* kProgress = "progress";

  // What one rank has logged since the last call, oldest first. A metric whose steps start again at a lower number
  // replaces its points from there on, kPatience samples after the last higher one. A rank that is only slower than
  // others never does that: its own steps must go back.
  void add(const std::vector<record::RecordedMetric>& metrics, std::uint64_t tick);
  // All ranks were read. Appends the steps that are complete: those which a metric has left behind by two steps, so
  // that no rank can still log it, and those that have been waiting for kPatience samples.
  void finish_sample(std::vector<Curve>& curves, std::uint64_t tick);

  // The ranks start again, and may repeat steps.
  void restart();

  // From the progress that the program logs; nothing if it logs none, or makes none.
  std::optional<double> seconds_left() const;

 private:
  static constexpr std::uint64_t kPatience = 4;

  struct Mean {
    double sum = 0;
    int ranks = 0;
    std::int64_t time_ns = 0;  // of the last value
    std::uint64_t tick = 0;    // of the first value
  };
  struct RankSteps {
    std::int64_t last = 0;
    std::uint64_t pass = 0;  // how often its steps went back
  };
  struct Metric {
    std::map<std::int64_t, Mean> pending;  // by step
    std::optional<std::int64_t> shown;     // the last step on the curve
    std::uint32_t generation = 0;
    std::uint64_t forward_tick = 0;  // of the last value beyond `shown`
    std::map<int, RankSteps> ranks;  // by rank; those of an unknown one count as one
    std::uint64_t pass = 0;          // the one that the curve shows
  };
  void show(Curve& curve, Metric& metric, std::int64_t step, const Mean& mean, std::uint64_t tick);

  std::map<std::string, Metric> metrics_;
  // When the progress was what.
  struct Progress {
    double seconds = 0;
    double done = 0;
  };
  std::vector<Progress> progress_;
};

}  // namespace lockstep::dashboard
