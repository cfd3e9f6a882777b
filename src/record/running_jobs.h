// The jobs of `lockstep run` on this machine that this user may look at, and what their ranks record.
//
// A launcher keeps the memory of each rank that it started as a descriptor, which the kernel shows in /proc/PID/fd to
// processes of the same user. Nothing has to be registered or cleaned up, and neither launcher nor ranks take part.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/shared_memory.h"
#include "lockstep/base/status.h"
#include "record/record_reader.h"

namespace lockstep::record {

struct RunningJob {
  pid_t launcher = 0;
  std::string command = {};                                // "lockstep run --nproc-per-node 4 ./train"
  std::vector<std::unique_ptr<SharedMemory>> memory = {};  // of each rank

  // By rank, then pid. Ranks that do not use Lockstep yet are left out.
  std::vector<RankRecord> read() const;
};

// Ascending by pid. A job that ends meanwhile is left out.
std::vector<RunningJob> find_running_jobs();
// The one with this pid; not_found with a message that names those that there are. Empty: the only one.
Result<RunningJob> find_running_job(const std::string& pid);

// What a rank is doing: "forward for 0.02 s; all_reduce #17 of 'world' has run for 3.10 s". `now_ns`: CLOCK_MONOTONIC.
std::string describe_activity(const RankRecord& record, std::int64_t now_ns);
// A collective in which a rank has been for more than a tenth of a second.
struct WaitingOperation {
  std::uint64_t group = 0;        // RecordedGroup::id
  std::uint64_t sequence = 0;     // with the group, what tells it from others
  std::string name = {};          // "all_reduce #17 of 'world'"
  std::int64_t since_ns = 0;      // when the first of these ranks reached it
  std::vector<int> missing = {};  // which of these ranks have not reached it, ascending
};
// Pure.
std::vector<WaitingOperation> find_waiting(const std::vector<RankRecord>& ranks, std::int64_t now_ns);
// For each collective in which a rank has been for more than a tenth of a second: which of these ranks have not reached
// it. "all_reduce #17 of 'world' waits for rank 2". Pure.
std::vector<std::string> describe_missing(const std::vector<RankRecord>& ranks, std::int64_t now_ns);

}  // namespace lockstep::record
