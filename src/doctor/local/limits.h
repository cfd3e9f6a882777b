// What the system lets a job use: descriptors, shared memory, locked and huge pages.
#pragma once

#include <cstdint>
#include <vector>

#include "doctor/finding.h"
#include "doctor/local/system.h"

namespace lockstep::doctor {

struct Limits {
  std::uint64_t open_files_soft = 0;  // what ranks get
  std::uint64_t open_files_hard = 0;
  std::uint64_t locked_bytes = 0;
  std::uint64_t shared_folder_bytes = 0;  // free in /dev/shm; 0: there is none
  std::string memfd_error = {};           // why a memfd cannot be made; empty: it can
};
// Makes a memfd, writes to it, and removes it.
Limits read_limits();

// Pure, but for what `system` reads. `ranks`: of the whole job.
std::vector<Finding> judge_limits(const Limits& limits, const System& system, int ranks);

}  // namespace lockstep::doctor
