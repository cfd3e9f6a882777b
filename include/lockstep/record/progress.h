// The progress of the training, for a human: a bar on a terminal, a line every five seconds in a file or pipe.
//
//   lockstep::Progress progress("epoch 1/5", {.total = 60000});
//   progress.advance(batch * world_size, {{"loss", loss}});
//
//   epoch 1/5 [############..................]  41 %  loss 0.5213  18231 samples/s  2 s left
//
// Only rank 0 prints, whichever process that is: all ranks count, so one that becomes rank 0 of an elastic job
// continues at the same position.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>

#include "lockstep/record/metrics.h"

namespace lockstep {

struct ProgressOptions {
  std::int64_t total = 0;  // of all ranks; 0: unknown, then there is no bar
  std::int64_t done = 0;   // before the first advance()
  std::string unit = "samples";
  // Without one: this process' rank in the world at the time. A process that belongs to none prints.
  std::optional<int> rank = std::nullopt;
  std::FILE* file = stdout;
  std::chrono::milliseconds line_every{5000};
};

// For one thread. Waits for nothing but the file, and does not communicate.
class Progress {
 public:
  Progress(std::string title, const ProgressOptions& options);

  // All ranks together have done `count` more. Metrics are shown as moving averages of what this rank passes; they are
  // not logged.
  void advance(std::int64_t count, std::initializer_list<Metric> metrics = {});
  // All ranks together have done `done`. For elastic jobs, where a step may be dropped:
  // progress.move_to(context.step(), ...).
  void move_to(std::int64_t done, std::initializer_list<Metric> metrics = {});

  double per_second() const;  // since the beginning, or since the position went back
  double seconds() const;     // since the beginning
  std::int64_t done() const { return done_; }

 private:
  using Clock = std::chrono::steady_clock;
  bool prints() const;
  void print();

  const std::string title_;
  const ProgressOptions options_;
  const bool terminal_;
  std::int64_t done_;
  std::map<std::string, double> averages_;
  Clock::time_point began_ = Clock::now();
  Clock::time_point measured_since_ = began_;
  std::int64_t measured_from_;
  std::optional<Clock::time_point> printed_;
  bool finished_ = false;  // the last line was printed
};

}  // namespace lockstep
