// A private Slurm cluster on this machine: a controller and some nodes, each a host of its own.
//
// Every host has its own network (support/hosts.h), host name, process ids and mounts. All of them see one /run, a
// tmpfs that only they see: it holds munge's socket, Slurm's configuration, state and logs, and what jobs write; and
// one /etc/hosts. The kernel ends all processes of a host when the host's first process ends, and that one ends with
// the test; mounts and networks go with the last process. So nothing is left behind, however the test ends, and
// nothing that this machine has of Slurm and munge (files, ports, daemons) is touched.
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
  int node_timeout = 300;  // seconds of silence after which Slurm takes a node for lost; 300 is its default
};

struct SlurmJob {
  std::vector<std::string> options = {};  // of sbatch; they win over those in the script
  std::string script;                     // path of the batch script
  std::vector<std::string> arguments = {};
  Environment environment = {};  // besides that of the test, without what names ranks
};

class SlurmCluster {
 public:
  // Blocks until every node is idle. `unavailable` where this machine cannot: not root, a command or kernel feature is
  // missing. See LOCKSTEP_START_SLURM_OR_SKIP.
  static Result<std::unique_ptr<SlurmCluster>> start(const SlurmOptions& options = {});
  // Ends all processes of the cluster and waits for their end.
  ~SlurmCluster();
  SlurmCluster(const SlurmCluster&) = delete;
  SlurmCluster& operator=(const SlurmCluster&) = delete;

  // The id of the job; throws std::runtime_error with what sbatch said. Its output goes to output().
  int submit(const SlurmJob& job);
  // "COMPLETED", "RUNNING", ... as Slurm says; empty where it does not know the job or does not answer.
  std::string state(int job);
  // The state in which the job ended; at the deadline what it is then.
  std::string wait_for_end(int job, Deadline deadline);
  // What the job's script and its steps have written so far.
  std::string output(int job) const;

  // scontrol update state=down: an administrator takes the node away, and Slurm kills what runs there.
  Status set_down(int node);
  // Power loss: the node's link is cut, then all its processes are gone, and nobody is told.
  Status power_off(int node);
  // The processes of jobs on a node: all but slurmd. Empty as soon as there are none; else those left at the deadline.
  std::vector<std::string> wait_for_idle_node(int node, Deadline deadline);

  // A folder that all nodes share, as jobs and as the test see it.
  static std::string folder();
  std::string folder_outside() const;

  // What Slurm and the job have said, for failure messages.
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
  std::vector<std::string> process_spaces_;            // of each: its pid namespace
};

}  // namespace lockstep::testing

// Declares `name`, a SlurmCluster, or skips the test and says why. Arguments after it: its SlurmOptions.
#define LOCKSTEP_START_SLURM_OR_SKIP(name, ...)                               \
  auto name##_result = ::lockstep::testing::SlurmCluster::start(__VA_ARGS__); \
  if (name##_result.status().code() == ::lockstep::StatusCode::unavailable)   \
    GTEST_SKIP() << name##_result.status().message();                         \
  ASSERT_TRUE(name##_result.ok()) << name##_result.status().to_string();      \
  ::lockstep::testing::SlurmCluster& name = *name##_result.value()
