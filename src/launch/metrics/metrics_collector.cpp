#include "launch/metrics/metrics_collector.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace lockstep::launch {

Result<std::unique_ptr<MetricsCollector>> MetricsCollector::create(const std::string& folder) {
  auto files = record::MetricFiles::open(folder);
  if (!files.ok()) return files.status().with_context("--metrics");
  return std::unique_ptr<MetricsCollector>(new MetricsCollector(*std::move(files)));
}

void MetricsCollector::started(const record::RecordMemory& memory, int round) {
  sources_.push_back(std::make_unique<Source>(Source{
      .memory = &memory, .number = processes_++, .round = round, .reader = record::RecordReader(memory.area())}));
}

void MetricsCollector::read(Source& source) {
  record::RankRecord& record = source.record;
  if (!source.reader.read_metrics(record)) return;
  for (const record::RecordedMetric& metric : record.metrics) {
    const std::int64_t generation = metric.generation != 0 ? metric.generation : source.round;
    points_.add(source.number, generation,
                {.name = metric.name,
                 .step = metric.step,
                 .value = metric.value,
                 .wall_ns = metric.time_ns + record.wall_offset_ns});
  }
  record.metrics.clear();
  if (record.lost > 0 && !lost_reported_) {
    lost_reported_ = true;
    lost_ = fmt::format(
        "rank {} (pid {}) logs metrics faster than they can be read: {} values are missing, perhaps more later",
        record.rank, record.pid, record.lost);
  }
}

void MetricsCollector::ended(const record::RecordMemory& memory) {
  for (auto next = sources_.begin(); next != sources_.end(); ++next) {
    if ((*next)->memory != &memory) continue;
    // Twice: see RecordReader.
    read(**next);
    read(**next);
    points_.process_ended((*next)->number);
    sources_.erase(next);
    return;
  }
}

void MetricsCollector::poll() {
  if (!next_.expired()) return;
  next_ = Deadline::after(std::chrono::milliseconds(kPeriodMs));
  for (const auto& source : sources_) read(*source);
  files_->write(points_.take(static_cast<std::int64_t>(record::monotonic_ns())));
}

void MetricsCollector::finish() {
  for (const auto& source : sources_) read(*source);
  files_->write(points_.take_all());
}

std::string MetricsCollector::take_trouble() {
  if (!lost_.empty()) return std::exchange(lost_, {});
  return files_->take_trouble();
}

}  // namespace lockstep::launch
