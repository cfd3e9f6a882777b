// What all of a launcher's parts share: the job as this node sees it, made before anything is started.
#pragma once

#include <sys/resource.h>

#include <optional>
#include <string>
#include <vector>

#include "launch/options/options.h"
#include "launch/output/console.h"
#include "launch/output/log_files.h"
#include "launch/process/child_environment.h"
#include "launch/process/guard.h"
#include "launch/process/runtime_directory.h"
#include "launch/program.h"
#include "lockstep/base/secret.h"

namespace lockstep::launch {

// Constant after prepare_job(), except that the console is written to.
struct Job {
  RunOptions options;
  Command command;
  std::string run_id;
  std::string host;                       // the name of this machine, for people
  Secret secret;                          // of the stores
  std::string child_secret;               // for the ranks; empty where they find it in their environment
  std::vector<std::string> environment;   // of this process
  std::vector<std::vector<int>> binding;  // cores by local rank; empty: anywhere
  int threads = 1;                        // per rank
  bool serve_store = true;
  rlimit open_files{};  // of the ranks: what the launcher was given itself
  RuntimeDirectory folder;
  LogFiles logs;
  Guard guard;
  Console console;

  std::string roster_file() const { return folder.path() + "/roster"; }
};

// Checks all that can be checked beforehand; what is wrong is one sentence (invalid_argument, or unavailable where the
// machine is at fault). Starts the guard's process, so it is to be called before there are threads.
Result<Job> prepare_job(RunOptions options, const Environment& environment);

}  // namespace lockstep::launch
