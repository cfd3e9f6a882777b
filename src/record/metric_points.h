// From the values that ranks have logged to the points of a curve: the mean of all values of one metric at one step.
//
// Without clock and files: who reads the ranks' records calls add() for each value, then take() with the time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace lockstep::record {

struct MetricValue {
  std::string name;
  std::int64_t step = 0;
  double value = 0;
  std::int64_t wall_ns = 0;
};

struct MetricPoint {
  std::string name;
  std::int64_t step = 0;
  std::int64_t generation = 0;
  std::int64_t wall_ns = 0;  // of the latest value
  double mean = 0;           // NaN if any value is
  double min = 0;            // of the values that are numbers; NaN if there are none
  double max = 0;
  int values = 0;
};

// A point is complete, and taken once, when every process that is known to log this metric has logged the step, or one
// of them a later step, or after kPatienceNs. A value that is logged even later becomes a point of its own.
class MetricPoints {
 public:
  static constexpr std::int64_t kPatienceNs = 10'000'000'000;

  // `process`: any number for the process. `generation` increases when the training starts again at an earlier step.
  void add(int process, std::int64_t generation, const MetricValue& value);
  void process_ended(int process);
  // Call it after the values of all processes have been added: only points that were there at the last call are
  // complete, because a process that was read early may since have logged a value. By generation, then by time.
  std::vector<MetricPoint> take(std::int64_t now_ns);
  // All points, because no more values will come.
  std::vector<MetricPoint> take_all();

 private:
  struct Open {
    MetricPoint point;
    double sum = 0;
    std::set<int> processes = {};
    std::int64_t first_seen_ns = 0;  // at the first take(); 0: none yet
  };
  struct Curve {
    std::set<int> processes = {};  // that have logged it and not ended
    bool known = false;            // a point was taken: `processes` has all that log it
  };
  using Key = std::tuple<std::int64_t, std::string, std::int64_t>;  // generation, name, step

  bool complete(const Open& open, bool later_step, std::int64_t now_ns) const;
  static MetricPoint finished(const Open& open);

  std::map<Key, Open> open_;
  std::map<std::string, Curve> curves_;
};

}  // namespace lockstep::record
