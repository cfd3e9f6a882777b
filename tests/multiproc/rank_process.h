// Shared by the roles of these tests: checks that end a rank with a message, and the check that it leaves nothing
// behind.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <lockstep/communicator/communicator.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "support/process_resources.h"
#include "support/process_set.h"

namespace lockstep::testing {

// Leaves the role, which then ends with kUncaughtExceptionCode and the message on standard error.
inline void require(bool fine, const std::string& what) {
  if (!fine) throw std::runtime_error(what);
}

inline int rank_from_environment() { return std::atoi(std::getenv("RANK")); }
inline int world_size_from_environment() { return std::atoi(std::getenv("WORLD_SIZE")); }

// For operations that must succeed: long enough for a busy machine, short enough for a test.
inline CommunicatorOptions patient_options() {
  return {.init_timeout = std::chrono::seconds(60), .timeout = std::chrono::seconds(60)};
}
inline std::shared_ptr<Communicator> join_world() { return Communicator::create({.group = patient_options()}); }

// Records the resources that the process holds, and fails unless it holds the same in the end. Create it before
// the first group.
class NothingLeftBehind {
 public:
  NothingLeftBehind() : expected_(ProcessResources::now()) {
    // Rank 0 got the store's socket from its parent; the group takes it over and closes it.
    if (std::getenv("LOCKSTEP_STORE_FD") != nullptr) --expected_.fds;
  }
  void check() const {
    const auto left = ProcessResources::settle(expected_, in_seconds(5));
    require(left == expected_,
            fmt::format("expected to hold {} fds, {} threads and {} shared mappings in the end, but "
                        "there are {}",
                        expected_.fds, expected_.threads, expected_.shared_mappings, describe(left)));
  }

 private:
  ProcessResources expected_;
};

// Waits for all ranks and expects that each has ended with code 0.
inline void expect_success(ProcessSet& ranks, double seconds = 50) {
  EXPECT_TRUE(ranks.wait_all(in_seconds(seconds))) << "not all ranks have ended\n" << ranks.report();
  EXPECT_TRUE(ranks.all_succeeded()) << ranks.report();
}

}  // namespace lockstep::testing
