#include "lockstep/record/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "record/metric_names.h"
#include "record/recorder.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kBarEvery{100};
constexpr std::size_t kBarWidth = 30;
// The weight of a new value in a metric's average.
constexpr double kNewest = 0.05;

std::string time_left(double seconds) {
  if (seconds < 100) return fmt::format("{:.0f} s left", seconds);
  if (seconds < 6000) return fmt::format("{:.0f} min left", seconds / 60);
  return fmt::format("{:.1f} h left", seconds / 3600);
}

}  // namespace

Progress::Progress(std::string title, const ProgressOptions& options)
    : title_(std::move(title)),
      options_(options),
      terminal_(::isatty(::fileno(options.file)) == 1),
      done_(options.done),
      measured_from_(options.done) {}

void Progress::advance(std::int64_t count, std::initializer_list<Metric> metrics) { move_to(done_ + count, metrics); }

void Progress::move_to(std::int64_t done, std::initializer_list<Metric> metrics) {
  const auto now = Clock::now();
  if (done < done_) {
    measured_since_ = now;
    measured_from_ = done;
  }
  done_ = done;
  for (const Metric& metric : metrics) {
    const auto [found, is_new] = averages_.try_emplace(record::stored_metric_name(metric.name), metric.value);
    if (is_new) continue;
    // What is not a number is shown, and does not spoil the average of what follows.
    const double change = metric.value - found->second;
    found->second = std::isfinite(change) ? found->second + kNewest * change : metric.value;
  }
  const bool complete = options_.total > 0 && done_ >= options_.total;
  if (!complete) finished_ = false;
  const std::chrono::milliseconds pause = terminal_ ? kBarEvery : options_.line_every;
  const bool due = !printed_ || now - *printed_ >= pause || (complete && !finished_);
  if (!due || finished_ || !prints()) return;
  printed_ = now;
  finished_ = complete;
  print();
}

double Progress::seconds() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

double Progress::per_second() const {
  const double seconds = std::chrono::duration<double>(Clock::now() - measured_since_).count();
  return static_cast<double>(done_ - measured_from_) / std::max(seconds, 1e-9);
}

bool Progress::prints() const {
  // Relaxed: it orders nothing. The rank plus 1; 0: unknown.
  const int rank = record::Recorder::process().area().rank.load(std::memory_order_relaxed) - 1;
  return options_.rank.value_or(rank) <= 0;
}

void Progress::print() {
  const double rate = per_second();
  std::string figures;
  for (const auto& [name, average] : averages_) figures += fmt::format("  {} {:.4f}", name, average);
  figures += fmt::format("  {:.{}f} {}/s", rate, rate < 10 ? 2 : 0, options_.unit);
  std::string bar;
  if (options_.total > 0) {
    const double part = std::clamp(static_cast<double>(done_) / static_cast<double>(options_.total), 0.0, 1.0);
    const auto full = static_cast<std::size_t>(part * kBarWidth);
    if (terminal_) bar = fmt::format(" [{:#<{}}{:.<{}}]", "", full, "", kBarWidth - full);
    figures = fmt::format(" {:3.0f} %{}", part * 100, figures);
    if (rate > 0)
      figures += "  " + time_left(static_cast<double>(std::max<std::int64_t>(options_.total - done_, 0)) / rate);
  } else {
    figures = fmt::format(" {} {}{}", done_, options_.unit, figures);
  }
  // The bar overwrites itself; the rest of a longer line is erased.
  const std::string line = terminal_ ? fmt::format("\r{}{}{}\033[K{}", title_, bar, figures, finished_ ? "\n" : "")
                                     : fmt::format("{}:{}\n", title_, figures);
  std::fputs(line.c_str(), options_.file);
  std::fflush(options_.file);
}

}  // namespace lockstep
