// Several ranks as processes of a test: the test program starts itself again, once for each rank.
//
//   LOCKSTEP_PROCESS_ROLE(sum_rank) {           // runs in each child; the result is its exit code
//     auto group = lockstep::Communicator::create();
//     print_mark("joined");
//     ...
//     return 0;
//   }
//   TEST(Sum, SurvivorsNameTheKilledRank) {
//     ProcessSet ranks = start_ranks(3, "sum_rank");
//     ASSERT_TRUE(ranks.wait_for_line(1, "joined", in_seconds(20))) << ranks.report();
//     ranks.kill(2, SIGKILL);
//     ASSERT_TRUE(ranks.wait_all(in_seconds(20))) << ranks.report();
//     EXPECT_THAT(ranks.error_output(0), HasSubstr("rank 2"));
//   }
//
// Link lockstep_test_main (lockstep_test does): its main() runs the role in children and GoogleTest
// otherwise. Children are started with posix_spawn, never with a bare fork, because the test
// program may have threads.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"

namespace lockstep::testing {

class HostSet;
struct ChildCommand;
struct StartOptions;

// Variables to set, or (without a value) to remove.
using Environment = std::map<std::string, std::optional<std::string>>;

// How a process ended.
struct ExitStatus {
  int code = 0;    // exit code, if `signal` is 0
  int signal = 0;  // the signal that killed it, or 0
  Deadline::Clock::time_point when;

  bool success() const { return signal == 0 && code == 0; }
  std::string to_string() const;  // "exit code 3", "killed by signal 9 (Killed)"
};

// The processes of one test, numbered by rank. A separate thread collects their output, so
// that no child blocks on a full pipe. May be called from any thread. Movable; the destructor
// kills and reaps all that still run.
class ProcessSet {
 public:
  ProcessSet(ProcessSet&&) noexcept;
  ProcessSet& operator=(ProcessSet&&) noexcept;
  ~ProcessSet();

  int size() const;
  pid_t pid(int rank) const;
  // Sends a signal: SIGKILL, SIGSTOP, SIGCONT, ... False if the process has ended already.
  bool kill(int rank, int signal);

  // True once every process has ended; false at the deadline.
  bool wait_all(Deadline deadline);
  // The exit status of one process, or nothing at the deadline.
  std::optional<ExitStatus> wait(int rank, Deadline deadline);
  // The exit status if the process has ended.
  std::optional<ExitStatus> exit_status(int rank) const;
  // True if every process has ended with exit code 0.
  bool all_succeeded() const;

  // Waits until a whole line of standard output or standard error contains `text`. False at the
  // deadline, or as soon as the process has ended without it.
  bool wait_for_line(int rank, const std::string& text, Deadline deadline);
  // What the process has written so far.
  std::string output(int rank) const;
  std::string error_output(int rank) const;
  // Every process' state and output, for failure messages.
  std::string report() const;

 private:
  friend ProcessSet start_ranks(int world_size, const std::string& role, const StartOptions& options);
  friend ProcessSet start_program(int world_size, const std::vector<std::string>& arguments,
                                  const StartOptions& options);
  // What to run, depending on the host's namespace (-1: ours).
  using CommandInside = std::function<ChildCommand(int namespace_fd)>;
  static ProcessSet start(int world_size, const StartOptions& options, const CommandInside& command_inside);
  class Impl;
  explicit ProcessSet(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct StartOptions {
  Environment environment = {};                         // for every rank
  std::function<Environment(int)> rank_variables = {};  // for one rank; overrides `environment`
  // Where the ranks run: equally many on each host, the first ranks on the first. Null: on this host. With
  // hosts the job gets a LOCKSTEP_SECRET too, because ranks of different hosts need one.
  const HostSet* hosts = nullptr;
};

// Starts `world_size` processes that run `role`, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
// set. The store's listening socket is created here and passed to rank 0 as LOCKSTEP_STORE_FD=<fd>, so
// that no other process can take the port in between; the parent keeps no copy. Every other
// variable that the engine reads, except LOCKSTEP_LOG, is removed from what the children inherit;
// LOCKSTEP_TEST_BACKEND becomes their LOCKSTEP_BACKEND.
//
// A child is killed by the kernel when the thread that started it ends, so that nothing survives
// the test: call this from the test's own thread. Throws std::exception if a process cannot be
// started or the role does not exist.
ProcessSet start_ranks(int world_size, const std::string& role, const StartOptions& options = {});

// The same for another program (and its arguments) instead of a role of this one.
ProcessSet start_program(int world_size, const std::vector<std::string>& arguments, const StartOptions& options = {});

// Registers the function that follows as a role. For the macro below.
using ProcessRole = int (*)();
struct RoleRegistrar {
  RoleRegistrar(const char* name, ProcessRole role);
};

// In a child: runs its role and returns the exit code. In the test program itself: nothing.
// An exception that leaves the role is printed and becomes kUncaughtExceptionCode.
inline constexpr int kUncaughtExceptionCode = 99;
std::optional<int> run_role_of_child();

// A line on standard output, written at once, for wait_for_line.
void print_mark(const std::string& line);

inline Deadline in_seconds(double seconds) {
  return Deadline::after(std::chrono::duration_cast<Deadline::Duration>(std::chrono::duration<double>(seconds)));
}

}  // namespace lockstep::testing

#define LOCKSTEP_PROCESS_ROLE(name)                                                                       \
  static int lockstep_role_##name();                                                                      \
  static const ::lockstep::testing::RoleRegistrar lockstep_registrar_##name(#name, lockstep_role_##name); \
  static int lockstep_role_##name()
