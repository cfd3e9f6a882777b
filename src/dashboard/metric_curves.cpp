#include "dashboard/metric_curves.h"

#include <algorithm>

namespace lockstep::dashboard {
namespace {

constexpr std::size_t kKeptProgress = 256;
constexpr const char* kByStep = "step";

Curve* find(std::vector<Curve>& curves, const std::string& name) {
  const auto found = std::find_if(curves.begin(), curves.end(),
                                  [&](const Curve& one) { return one.name() == name && one.x_name() == kByStep; });
  return found == curves.end() ? nullptr : &*found;
}

}  // namespace

void MetricCurves::add(const std::vector<record::RecordedMetric>& metrics, std::uint64_t tick) {
  for (const auto& value : metrics) {
    if (metrics_.size() >= kMostCurves && !metrics_.contains(value.name)) continue;
    Metric& metric = metrics_[value.name];
    if (value.generation > metric.generation) {
      // Steps that were not committed are repeated.
      metric = {};
      metric.generation = value.generation;
    }
    if (value.generation < metric.generation) continue;
    RankSteps& rank = metric.ranks.try_emplace(value.rank, RankSteps{.last = value.step}).first->second;
    if (value.step < rank.last) ++rank.pass;
    rank.last = value.step;
    if (metric.shown && value.step < *metric.shown && rank.pass > metric.pass &&
        tick - metric.forward_tick > kPatience) {
      // No rank is ahead any more: the program counts these steps from the beginning again, in each epoch for example.
      metric.pending.clear();
      metric.shown.reset();
      metric.pass = rank.pass;
    }
    if (metric.shown && value.step <= *metric.shown) continue;  // of a rank that is late
    metric.forward_tick = tick;
    Mean& mean = metric.pending[value.step];
    if (mean.ranks == 0) mean.tick = tick;
    mean.sum += value.value;
    ++mean.ranks;
    mean.time_ns = std::max(mean.time_ns, value.time_ns);
  }
}

void MetricCurves::show(Curve& curve, Metric& metric, std::int64_t step, const Mean& mean, std::uint64_t tick) {
  const double value = mean.sum / mean.ranks;
  curve.rewind(double(step), tick);
  curve.add({.tick = tick, .x = double(step), .y = value});
  metric.shown = step;
  if (curve.name() != kProgress) return;
  progress_.push_back({double(mean.time_ns) * 1e-9, value});
  if (progress_.size() > kKeptProgress) progress_.erase(progress_.begin());
}

void MetricCurves::finish_sample(std::vector<Curve>& curves, std::uint64_t tick) {
  for (auto& [name, metric] : metrics_) {
    if (metric.pending.empty()) continue;
    Curve* curve = find(curves, name);
    if (curve == nullptr) curve = &curves.emplace_back(name, kByStep);
    const std::int64_t latest = metric.pending.rbegin()->first;
    while (!metric.pending.empty()) {
      const auto& [step, mean] = *metric.pending.begin();
      if (step + 2 > latest && mean.tick + kPatience > tick) break;
      show(*curve, metric, step, mean, tick);
      metric.pending.erase(metric.pending.begin());
    }
  }
}

void MetricCurves::restart() {
  for (auto& [name, metric] : metrics_) {
    const std::uint32_t generation = metric.generation;
    metric = {};
    metric.generation = generation;
  }
  progress_.clear();
}

std::optional<double> MetricCurves::seconds_left() const {
  if (progress_.size() < 2) return std::nullopt;
  const double done = progress_.back().done - progress_.front().done;
  const double seconds = progress_.back().seconds - progress_.front().seconds;
  if (!(done > 0) || !(seconds > 0)) return std::nullopt;
  return std::max(0.0, 1 - progress_.back().done) * seconds / done;
}

}  // namespace lockstep::dashboard
