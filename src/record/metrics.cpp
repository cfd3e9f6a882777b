#include "lockstep/record/metrics.h"

#include "base/log.h"
#include "record/recorder.h"

namespace lockstep {

void log_metrics(std::span<const Metric> metrics, std::optional<std::int64_t> step) noexcept {
  record::Recorder& recorder = record::Recorder::process();
  record::RecordArea& area = recorder.area();
  // Relaxed, all of them: they label the values and order nothing.
  record::MetricRecord record{.ticks = record::now_ticks(),
                              .generation = area.generation.load(std::memory_order_relaxed),
                              .rank = area.rank.load(std::memory_order_relaxed) - 1};
  const std::int64_t trained = area.step.load(std::memory_order_relaxed);
  for (const Metric& metric : metrics) {
    const auto name = record::find_metric_name(area.metric_names, metric.name);
    if (!name) {
      // Relaxed: a count.
      if (area.metrics_not_recorded.fetch_add(1, std::memory_order_relaxed) == 0) {
        log_warn("metric '{}' is not recorded: this process has logged {} other names, which is the limit",
                 record::stored_metric_name(metric.name), record::kMetricNames);
      }
      continue;
    }
    const std::int64_t logged = area.metric_names[*name].logged.fetch_add(1, std::memory_order_relaxed);
    record.name = *name;
    record.value = metric.value;
    record.step = step.value_or(trained != 0 ? trained : logged);
    area.metrics.add(record);
  }
}

void log_metrics(std::initializer_list<Metric> metrics, std::optional<std::int64_t> step) noexcept {
  log_metrics(std::span(metrics.begin(), metrics.size()), step);
}

void log_metric(std::string_view name, double value, std::optional<std::int64_t> step) noexcept {
  const Metric metric{name, value};
  log_metrics(std::span(&metric, 1), step);
}

}  // namespace lockstep
