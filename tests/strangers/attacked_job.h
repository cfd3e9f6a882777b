// A job of engine-only ranks at the usual limit of 1,024 descriptors, as several hosts, so that it listens on TCP.
#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <string>

#include "strangers/crowd.h"
#include "support/process_set.h"
#include "support/reserved_port.h"

namespace lockstep::testing {

class AttackedJob {
 public:
  explicit AttackedJob(int ranks);
  ~AttackedJob();

  // Starts the ranks. Until finish() they train.
  void start();
  // Until then the others wait for it, while the group forms.
  void let_the_last_rank_join();
  // Where the job listens.
  std::set<std::uint16_t> ports() const;
  // The largest number of descriptors of a rank so far.
  std::size_t most_descriptors();
  // Lets the job end and returns whether all ranks have succeeded.
  bool finish();
  ProcessSet& ranks() { return *ranks_; }

  // What rank 0 printed last: steps, and processor time of all ranks in seconds.
  struct Progress {
    double steps = 0;
    double processor_seconds = 0;
  };
  Progress progress() const;

 private:
  const int size_;
  ReservedPort port_;
  const std::string stop_file_;
  std::unique_ptr<ProcessSet> ranks_;
  std::size_t most_descriptors_ = 0;
};

// What a rank of the job does.
int run_attacked_rank();

}  // namespace lockstep::testing
