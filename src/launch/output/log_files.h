// The files with each rank's output: <folder>/<run id>/attempt_<n>/<local rank>/stdout.log, stderr.log.
#pragma once

#include <string>

#include "base/unique_fd.h"
#include "launch/options/options.h"
#include "lockstep/base/status.h"

namespace lockstep::launch {

// Several nodes may share the folder, so with more than one node there is node_<r>/ before attempt_<n>/.
class LogFiles {
 public:
  // None: no option asked for files. Otherwise creates --log-dir (or a new folder in `temporary` if only --redirects
  // or --tee were given) and the run's folder in it; invalid_argument if it cannot be created or written to.
  static Result<LogFiles> create(const RunOptions& options, const std::string& run_id, const std::string& temporary);

  // Where one stream of a rank goes.
  struct Route {
    bool to_file = false;
    bool to_console = true;
  };
  Route route(int local_rank, int stream) const;  // stream: 1 or 2

  // The folder of one attempt of a rank, created if it does not exist; empty if there are no log files.
  Result<std::string> folder(int node_rank, int attempt, int local_rank) const;
  // Opened for appending: an earlier run of the same name is never overwritten.
  static Result<UniqueFd> open(const std::string& folder, int stream);

  // Empty if there are no log files.
  const std::string& root() const { return root_; }

 private:
  std::string root_;
  bool several_nodes_ = false;
  bool everything_ = false;  // --log-dir alone
  StreamChoice redirects_;
  StreamChoice tee_;
  std::vector<int> shown_;
};

}  // namespace lockstep::launch
