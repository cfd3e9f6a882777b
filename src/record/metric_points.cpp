#include "record/metric_points.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::record {

void MetricPoints::add(int process, std::int64_t generation, const MetricValue& value) {
  auto [found, is_new] = open_.try_emplace(Key(generation, value.name, value.step));
  Open& open = found->second;
  MetricPoint& point = open.point;
  if (is_new) {
    constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
    point = {.name = value.name, .step = value.step, .generation = generation, .min = kNone, .max = kNone};
  }
  open.sum += value.value;
  open.processes.insert(process);
  ++point.values;
  point.wall_ns = std::max(point.wall_ns, value.wall_ns);
  point.min = std::fmin(point.min, value.value);  // these two prefer a number to NaN
  point.max = std::fmax(point.max, value.value);
  curves_[value.name].processes.insert(process);
}

void MetricPoints::process_ended(int process) {
  for (auto& [name, curve] : curves_) curve.processes.erase(process);
}

bool MetricPoints::complete(const Open& open, bool later_step, std::int64_t now_ns) const {
  if (open.first_seen_ns == 0) return false;
  if (later_step || now_ns - open.first_seen_ns >= kPatienceNs) return true;
  const Curve& curve = curves_.at(open.point.name);
  if (!curve.known && !curve.processes.empty()) return false;
  return std::includes(open.processes.begin(), open.processes.end(), curve.processes.begin(), curve.processes.end());
}

MetricPoint MetricPoints::finished(const Open& open) {
  MetricPoint point = open.point;
  point.mean = open.sum / point.values;
  return point;
}

std::vector<MetricPoint> MetricPoints::take(std::int64_t now_ns) {
  std::vector<MetricPoint> points;
  // Backwards, so that the later steps of the same curve have been visited.
  std::map<std::string, bool> seen_before;  // a later step, or a later generation, was there at the last call
  for (auto next = open_.end(); next != open_.begin();) {
    --next;
    Open& open = next->second;
    bool& later = seen_before[open.point.name];
    const bool seen = open.first_seen_ns != 0;
    if (complete(open, later, now_ns)) {
      points.push_back(finished(open));
      curves_[open.point.name].known = true;
      next = open_.erase(next);
    } else if (!seen) {
      open.first_seen_ns = std::max<std::int64_t>(now_ns, 1);
    }
    later = later || seen;
  }
  std::sort(points.begin(), points.end(), [](const MetricPoint& a, const MetricPoint& b) {
    return std::tie(a.generation, a.wall_ns, a.name, a.step) < std::tie(b.generation, b.wall_ns, b.name, b.step);
  });
  return points;
}

std::vector<MetricPoint> MetricPoints::take_all() {
  for (auto& [key, open] : open_) open.first_seen_ns = 1;
  return take(std::numeric_limits<std::int64_t>::max());
}

}  // namespace lockstep::record
