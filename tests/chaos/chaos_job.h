// An elastic training on several hosts (network namespaces), one `lockstep run` on each, and functions that inject
// faults.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "elastic/logged_training.h"
#include "support/hosts.h"
#include "support/process_set.h"

namespace lockstep::testing {

struct ChaosOptions {
  int hosts = 3;
  int ranks = 2;         // on each host
  std::string launcher;  // the lockstep command
  std::string program;   // the training
  std::string folder;    // of everything that the job writes
  TrainingPlan plan = {};
};

class ChaosJob {
 public:
  ChaosJob(const ChaosOptions& options, HostSet& hosts);
  // Kills all remaining processes.
  ~ChaosJob();

  // Starts the launcher of a host, or restarts it after it was killed.
  void start_node(int host);
  bool node_runs(int host) const;
  // As an operator would: kills and starts the launchers that run fewer workers than they should, because they have
  // given up one that died too often right after its start. Returns how many.
  int restart_incomplete_nodes();
  // To the launcher of a host; its ranks die with it.
  void signal_node(int host, int signal);
  // The pids of all ranks that run now, on one host or on all.
  std::vector<pid_t> ranks(std::optional<int> host = std::nullopt) const;
  // The pids of everything that the job has started on a host, the launcher included.
  std::vector<pid_t> processes(int host) const;
  // Continues all processes of the job that are stopped.
  void continue_stopped() const;

  // A small file system that only this host's launcher and ranks use; empty if this process may not mount one.
  std::string runtime_folder(int host) const;
  // LOCKSTEP_FAILPOINTS of all processes.
  std::string failpoint_folder() const { return options_.folder + "/failpoints"; }

  // Those of them that have the state of the training, because they have committed a step.
  std::vector<pid_t> holders(std::optional<int> host = std::nullopt);
  // Waits until that many have it; false at the deadline.
  bool wait_for_holders(std::size_t count, Deadline deadline);

  // The highest step that any process has committed so far; -1: none.
  std::int64_t newest_step();
  // False at the deadline, or when no launcher runs any more.
  bool wait_for_step(std::int64_t step, Deadline deadline);

  // Lets the job end after the present epoch, and waits for all launchers. False at the deadline.
  bool finish(Deadline deadline);
  bool all_succeeded() const;
  // Processes of the job that are still there.
  std::vector<pid_t> leftovers() const;
  std::string report() const;

 private:
  bool is_on(pid_t pid, int host) const;

  const ChaosOptions options_;
  HostSet& hosts_;
  bool has_disks_ = false;
  std::string secret_;
  std::vector<std::optional<ProcessSet>> nodes_;
  std::string earlier_;                        // reports of launchers that were killed
  std::map<std::string, std::uint64_t> read_;  // how far each log was read
  std::set<pid_t> committed_;                  // pids of ranks that have committed a step
  std::int64_t newest_ = -1;
};

}  // namespace lockstep::testing
