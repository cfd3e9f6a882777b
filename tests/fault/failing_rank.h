// A rank whose group is expected to fail, and the test's side of it.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/communicator/communicator.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "multiproc/rank_process.h"
#include "support/process_set.h"

namespace lockstep::testing {

// How ranks are connected, and how soon a death is promised to be detected.
enum class Wire { host, tcp };
inline std::string to_string(Wire wire) { return wire == Wire::host ? "host" : "tcp"; }
inline double promised_seconds(Wire wire) { return wire == Wire::host ? 1.0 : 2.0; }
// Variables that make the engine use the wire.
Environment variables_for(Wire wire, int rank);

// ---- in a rank ----

// What the call threw, or ok.
Status error_of(const std::function<void()>& call);

// Prints on standard output when and how this rank's group failed, for Failures below.
void report_failure(const Status& failure);

// Joins the world with `options`, prints "joined", runs `body`, which must end with the group's error;
// reports that error; checks that later calls fail at once with the same code, that the group can be
// destroyed without delay, and that nothing is left behind. For use as a whole role.
int run_until_failure(const CommunicatorOptions& options, const std::function<void(Communicator&)>& body);

// ---- in the test ----

// The failure that a rank reported.
struct Failure {
  Deadline::Clock::time_point when;
  std::string text;  // Status::to_string
};

// Waits until the rank reports its failure. A missing report fails the test.
Failure await_failure(ProcessSet& ranks, int rank, double seconds);

// What a message must contain to name a rank: "rank 2 (host ..., pid 4711)".
::testing::Matcher<std::string> NamesRank(int rank, pid_t pid);

// Measures from its construction how long the machine delayed a runnable thread: processes that do not
// get to run for a second cannot keep a promise of one second.
class StallWatch {
 public:
  StallWatch();
  ~StallWatch();
  double longest_seconds() const { return longest_.load(); }
  Deadline::Clock::time_point start() const { return start_; }

 private:
  const Deadline::Clock::time_point start_ = Deadline::Clock::now();
  std::atomic<double> longest_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Prints the time from the start of the watch to the latest of the failures, and expects at most `limit_seconds`,
// stalls of the machine not counted.
void report_detection(const std::string& what, const StallWatch& watch, const std::vector<Failure>& failures,
                      double limit_seconds);

}  // namespace lockstep::testing
