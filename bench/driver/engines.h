// The engines of a run: starts the ranks of each and exchanges messages with them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/driver/network.h"
#include "bench/driver/options.h"
#include "bench/driver/process.h"
#include "bench/worker/channel.h"

namespace lockstep::bench {

// What all engines of a run share.
struct Session {
  const BenchOptions& options;
  const TemporaryFolder& folder;
  const VirtualNetwork* network;  // null: this host only
  std::string programs;           // the folder with the worker programs
  int ranks;
  std::vector<int> cores;  // one per rank, or empty: ranks share cores
  std::size_t arena;       // bytes of buffers per rank
  std::string secret;
};

// Why an engine cannot be measured, or empty: "openmpi is missing: ...".
std::string why_missing(const Session& session, const std::string& engine);

// The running worker processes of one engine. They sleep between commands.
class EngineProcesses {
 public:
  // Starts them and waits until all are ready. `engine`: "lockstep", a peer, "limit" (on one host)
  // or "link" (one process per host). Throws BenchError, with the output of the processes.
  EngineProcesses(const Session& session, const std::string& engine);
  ~EngineProcesses();
  EngineProcesses(const EngineProcesses&) = delete;
  EngineProcesses& operator=(const EngineProcesses&) = delete;

  // Runs a command on every rank; one reply per rank, by rank. Throws BenchError if a rank ends,
  // fails, or does not answer within ten minutes. If the engine rejects the command, the replies'
  // `error` contains the reason, and the engine remains usable.
  std::vector<Reply> run(const Command& command);

  const std::string& name() const { return name_; }

 private:
  void launch(const Session& session);
  void accept_ranks();
  std::vector<Reply> collect();
  [[noreturn]] void fail(const std::string& what);

  std::string name_;
  std::string output_file_;
  std::size_t ranks_;
  UniqueFd shared_;
  UniqueFd listener_;
  std::vector<ChildProcess> children_;
  std::vector<Channel> channels_;  // by rank; closed before the children are waited for
  std::vector<int> pids_;          // by rank
};

}  // namespace lockstep::bench
