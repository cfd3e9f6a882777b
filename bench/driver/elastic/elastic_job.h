// A training job that `lockstep bench elastic` starts, kills processes of, and observes.
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

// The launchers of one job, and the log of its ranks. The destructor ends all processes of the job. Every call that
// waits throws BenchError, with the output of the job, if a launcher has ended, at its deadline, or if the benchmark
// was interrupted.
class TrainingJob {
 public:
  // `folder` must be empty. The ranks log to <folder>/steps, which their command line must name; output goes to
  // <folder>/output.
  TrainingJob(std::string name, const std::string& folder, const std::vector<Launcher>& launchers);
  ~TrainingJob();
  TrainingJob(const TrainingJob&) = delete;
  TrainingJob& operator=(const TrainingJob&) = delete;

  static std::string steps_folder(const std::string& folder) { return folder + "/steps"; }

  // Waits until `ranks` ranks train together and each has committed at least `steps` steps.
  void wait_for_training(int ranks, int steps);
  // Waits until all launchers have ended by themselves.
  void wait_for_end();
  // Sends SIGKILL to these ranks, and to the first launcher if requested; returns the time just before the first kill.
  std::int64_t kill(const std::set<int>& ranks, bool first_launcher = false);
  // Waits until the job has continued and, if requested, a replacement trains.
  Aftermath wait_for_aftermath(std::int64_t kill_time, bool with_replacement);

  // Throws BenchError with what is wrong ("took too long") and the output of the job.
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
