// A training job that `lockstep bench elastic` starts, hurts and watches.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "bench/driver/elastic/step_log.h"
#include "bench/driver/process.h"
#include "lockstep/base/deadline.h"

namespace lockstep::bench {

// CLOCK_MONOTONIC, as in the step log.
std::int64_t monotonic_ns();

// A launcher to be started, with the variables for it ("NAME=value").
struct Launcher {
  std::vector<std::string> command;
  std::vector<std::string> environment = {};
};

// The launchers of one job, and what their ranks log. At the end the launchers are ended, and then nothing of the job
// runs any more. Every call that waits throws BenchError, with what the job said, when a launcher has ended,
// at its deadline, or when the benchmark was interrupted.
class TrainingJob {
 public:
  // `folder` is empty: the ranks log to <folder>/steps, which they must have been told; output goes to
  // <folder>/output.
  TrainingJob(std::string name, const std::string& folder, const std::vector<Launcher>& launchers);
  ~TrainingJob();
  TrainingJob(const TrainingJob&) = delete;
  TrainingJob& operator=(const TrainingJob&) = delete;

  static std::string steps_folder(const std::string& folder) { return folder + "/steps"; }

  // Until this many ranks train together, and each has committed so many steps.
  void wait_for_training(int ranks, int steps);
  // Until all launchers have ended by themselves.
  void wait_for_end();
  // kill -9 of these ranks, and of the first launcher if asked for; returns the time just before the first.
  std::int64_t kill(const std::set<int>& ranks, bool first_launcher = false);
  // Until the job has gone on, and, if asked for, a replacement trains.
  Aftermath wait_for_aftermath(std::int64_t kill_time, bool with_replacement);

  // Throws BenchError: what is wrong ("took too long"), and what the job said.
  [[noreturn]] void fail(const std::string& what) const;

  StepLog log() const { return StepLog::read(steps_folder(folder_)); }

 private:
  void check(const Deadline& deadline, const std::string& waiting_for);
  bool belongs_to_job(pid_t pid) const;

  const std::string name_;
  const std::string folder_;
  std::vector<ChildProcess> launchers_;
  bool first_was_killed_ = false;
};

}  // namespace lockstep::bench
