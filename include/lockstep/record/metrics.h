// Metrics of the training: the loss, the accuracy, a learning rate, whatever a curve shall show.
//
//   lockstep::log_metric("loss", loss.item<double>());
//   lockstep::log_metrics({{"accuracy", accuracy.compute()}, {"learning rate", rate}});
//
// Any rank may log. Readers (`lockstep run --metrics`) show the mean over the ranks that logged a metric at a step, so
// the loss of each rank's own batch becomes that of the whole batch; what rank 0 alone logs, they show as it is.
//
// The value goes into the recorder's memory of this process, from which the launcher reads it, also after the process
// was killed. A call waits for nothing. It neither throws nor fails: values are left out if the
// process logs more than 128 names (there is a warning), or more than 4,096 values before a reader has read them, which
// it does several times per second.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>

namespace lockstep {

struct Metric {
  // Text in UTF-8. "train/loss" groups curves in TensorBoard. Control characters and bytes that are not UTF-8 are
  // replaced by '?', and what exceeds 63 bytes is cut off; names that are equal then are one metric.
  std::string_view name;
  double value = 0;  // may be infinite or NaN
};

// `step`: where the value is on the curve. Without one, it is the number of steps of DDP so far: that of the job in
// elastic::run, otherwise that of this process. In a program without DDP, how often this process has logged the name
// before.
void log_metric(std::string_view name, double value, std::optional<std::int64_t> step = std::nullopt) noexcept;
// Several values with the same step and time.
void log_metrics(std::initializer_list<Metric> metrics, std::optional<std::int64_t> step = std::nullopt) noexcept;
void log_metrics(std::span<const Metric> metrics, std::optional<std::int64_t> step = std::nullopt) noexcept;

}  // namespace lockstep
