// A private Slurm cluster on this machine: a controller and some nodes, each a host of its own.
//
// Every host has its own network (support/hosts.h), host name, process ids and mounts. All of them share one /etc/hosts
// and one /run, a tmpfs that is visible only to them: it holds munge's socket, Slurm's configuration, state and logs,
// and the output of jobs. The kernel ends all processes of a host when the host's first process ends, and that one ends
// with the test; mounts and networks are removed with the last process. So nothing is left behind, however the test
// ends, and the Slurm and munge of this machine (files, ports, daemons) are not touched.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/status.h"
#include "support/hosts.h"
#include "support/process_set.h"

namespace lockstep::testing {

struct SlurmOptions {
  int nodes = 2;
  int node_timeout = 300;  // seconds without an answer after which Slurm considers a node lost; 300 is its default
};

struct SlurmJob {
  std::vector<std::string> options = {};  // of sbatch; they override those in the script
  std::string script;                     // path of the batch script
  std::vector<std::string> arguments = {};
  Environment environment = {};  // added to that of the test, from which the variables of ranks are removed
};

class SlurmCluster {
 public:
  // Blocks until every node is idle. `unavailable` if this process cannot start a cluster: the message names the
  // privilege, the command or the kernel feature that is missing. See LOCKSTEP_START_SLURM_OR_SKIP.
  static Result<std::unique_ptr<SlurmCluster>> start(const SlurmOptions& options = {});
  // Ends all processes of the cluster and waits for their end.
  ~SlurmCluster();
  SlurmCluster(const SlurmCluster&) = delete;
  SlurmCluster& operator=(const SlurmCluster&) = delete;

  // Returns the id of the job, whose output goes to output(). Throws std::runtime_error with the output of sbatch.
  int submit(const SlurmJob& job);
  // "COMPLETED", "RUNNING", ... as Slurm reports it; empty if it does not know the job or does not answer.
  std::string state(int job);
  // The state in which the job ended, or its state at the deadline.
  std::string wait_for_end(int job, Deadline deadline);
  // The output of the job's script and its steps so far.
  std::string output(int job) const;

  // scontrol update state=down: an administrator takes the node away, and Slurm kills what runs there.
  Status set_down(int node);
  // Power loss: cuts the node's link, then kills all its processes, so that no peer is notified.
  Status power_off(int node);
  // The processes of jobs on a node: all but slurmd. Empty as soon as there are none; else those left at the deadline.
  std::vector<std::string> wait_for_idle_node(int node, Deadline deadline);

  // A folder that all nodes share, as jobs and as the test see it.
  static std::string folder();
  std::string folder_outside() const;

  // The output of Slurm and of the job, for failure messages.
  std::string report(int job);

 private:
  explicit SlurmCluster(HostSet hosts);
  Status start_controller(const SlurmOptions& options);
  Status start_node(int node);
  Status wait_for_nodes(Deadline deadline);
  // Runs a command of Slurm on the controller's host.
  struct Answer {
    bool success = false;
    std::string output;
    std::string error;
  };
  Answer ask(const std::vector<std::string>& command, const Environment& environment = {});
  std::vector<pid_t> processes_of(std::size_t host) const;

  HostSet hosts_;
  std::vector<std::unique_ptr<ProcessSet>> machines_;  // the controller, then the nodes
  std::vector<std::string> process_spaces_;            // the pid namespace of each
};

}  // namespace lockstep::testing

// Declares `name`, a SlurmCluster, or skips the test with the reason. The second argument is its SlurmOptions.
#define LOCKSTEP_START_SLURM_OR_SKIP(name, ...)                               \
  auto name##_result = ::lockstep::testing::SlurmCluster::start(__VA_ARGS__); \
  if (name##_result.status().code() == ::lockstep::StatusCode::unavailable)   \
    GTEST_SKIP() << name##_result.status().message();                         \
  ASSERT_TRUE(name##_result.ok()) << name##_result.status().to_string();      \
  ::lockstep::testing::SlurmCluster& name = *name##_result.value()
