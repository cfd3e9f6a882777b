#include "lockstep/record/metrics_writer.h"

#include <vector>

#include "base/log.h"
#include "lockstep/base/status.h"
#include "record/metric_files.h"
#include "record/metric_names.h"
#include "record/ticks.h"

namespace lockstep {

MetricsWriter::MetricsWriter(const std::string& folder) {
  auto files = record::MetricFiles::open(folder);
  if (!files.ok()) throw Error(files.status());
  files_ = *std::move(files);
}

MetricsWriter::~MetricsWriter() = default;
MetricsWriter::MetricsWriter(MetricsWriter&&) noexcept = default;
MetricsWriter& MetricsWriter::operator=(MetricsWriter&&) noexcept = default;

void MetricsWriter::write(std::initializer_list<Metric> metrics, std::int64_t step) {
  if (step < last_step_) ++generation_;
  last_step_ = step;
  std::vector<record::MetricPoint> points;
  for (const Metric& metric : metrics) {
    points.push_back({.name = record::stored_metric_name(metric.name),
                      .step = step,
                      .generation = generation_,
                      .wall_ns = record::wall_clock_ns(),
                      .mean = metric.value,
                      .min = metric.value,
                      .max = metric.value,
                      .values = 1});
  }
  files_->write(points);
  if (const std::string trouble = files_->take_trouble(); !trouble.empty()) log_warn("{}", trouble);
}

}  // namespace lockstep
