// The ranks of one contestant of `lockstep bench ddp`: starts them and exchanges messages with them.
#pragma once

#include <string>
#include <vector>

#include "bench/driver/network.h"
#include "bench/driver/options.h"
#include "bench/driver/process.h"

namespace lockstep::bench {

// What all contestants of a run share.
struct DdpSession {
  const DdpBenchOptions& options;
  const TemporaryFolder& folder;
  const VirtualNetwork* network;  // null: this host only
  std::string secret;

  int ranks() const { return options.hosts.enabled() ? options.hosts.hosts * options.hosts.ranks_each : options.nproc; }
};

// One way to train: the program of the ranks, its mode, and the mpirun that starts it, if any.
struct DdpContestant {
  std::string name;                  // of its row
  std::vector<std::string> program;  // what every rank runs
  std::string mode;                  // see bench/ddp/ddp_worker.cpp
  std::string mpi = {};              // "openmpi", "mpich"; empty: started one by one
};

// The answer of a rank; see bench/ddp/ddp_worker.cpp.
struct DdpAnswer {
  double both_ms = 0, all_ms = 0, exposed_ms = 0, resident_mib = 0, peak_mib = 0, loss = 0;
};

// Running processes, which sleep between commands. The destructor tells them to end, and kills those that do not.
class DdpRanks {
 public:
  // Starts them; does not wait until they are ready. `index` differs between the contestants of a run. Throws
  // BenchError.
  DdpRanks(const DdpSession& session, const DdpContestant& contestant, int index);
  ~DdpRanks();
  DdpRanks(const DdpRanks&) = delete;
  DdpRanks& operator=(const DdpRanks&) = delete;

  // Runs this many steps on all ranks; returns their answers, by rank. Throws BenchError, with the output of the
  // processes, if one has ended or does not answer within five minutes.
  std::vector<DdpAnswer> run(int steps);

 private:
  void start_one_by_one(const DdpSession& session, const std::vector<std::string>& command,
                        const std::vector<std::string>& environment);
  void start_with_mpirun(const DdpSession& session, const std::string& mpi, const std::vector<std::string>& command,
                         std::vector<std::string> environment);
  DdpAnswer answer_of(std::size_t rank);
  [[noreturn]] void fail(const std::string& what) const;

  std::string name_;
  std::string output_file_;
  std::vector<ChildProcess> children_;
  std::vector<UniqueFd> commands_, answers_;  // by rank
};

}  // namespace lockstep::bench
