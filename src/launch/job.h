// What all parts of a launcher share: the job on this node, prepared before anything is started.
#pragma once

#include <sys/resource.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dashboard/dashboard.h"
#include "launch/metrics/metrics_collector.h"
#include "launch/options/options.h"
#include "launch/output/console.h"
#include "launch/output/log_files.h"
#include "launch/process/child_environment.h"
#include "launch/process/guard.h"
#include "launch/process/runtime_directory.h"
#include "launch/program.h"
#include "launch/trace/trace_collector.h"
#include "lockstep/base/secret.h"

namespace lockstep::launch {

// Constant after prepare_job(), except that the console is written to, and trace and metrics are collected.
struct Job {
  RunOptions options;
  Command command;
  std::string run_id;
  std::string host;                       // the name of this machine, human-readable
  Secret secret;                          // of the stores
  std::string child_secret;               // for the ranks; empty if they read the file
  std::vector<std::string> environment;   // of this process
  std::vector<std::vector<int>> binding;  // cores by local rank; empty: anywhere
  int threads = 1;                        // per rank
  bool serve_store = true;
  rlimit open_files{};  // of the ranks: the launcher's own original limit
  RuntimeDirectory folder;
  LogFiles logs;
  Guard guard;
  std::unique_ptr<TraceCollector> trace;            // null without --trace
  std::unique_ptr<MetricsCollector> metrics;        // null without --metrics
  std::unique_ptr<dashboard::Dashboard> dashboard;  // null without --dashboard
  Console console;

  // What the ranks of this node have accepted, and what its launcher has (membership/roster.h).
  std::string roster_file() const { return rank_roster_in(folder.path()); }
  std::string node_roster_file() const { return node_roster_in(folder.path()); }
  static std::string rank_roster_in(const std::string& folder) { return folder + "/roster"; }
  static std::string node_roster_in(const std::string& folder) { return folder + "/rounds"; }
};

// Checks everything that can be checked in advance. Errors have one-line messages: invalid_argument, or unavailable if
// the machine is the cause. Starts the guard's process, so call it before other threads are started.
Result<Job> prepare_job(RunOptions options, const Environment& environment);

}  // namespace lockstep::launch
