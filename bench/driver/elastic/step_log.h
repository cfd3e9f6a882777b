// The log of the ranks of `lockstep bench elastic`, and what follows from it about a kill. Pure, except for read().
//
// Every process appends lines to a file of its own, named after its pid, each line with one write(2):
//   enter <ns> <pid> <ns of the process' start>             before it asks to join the job
//   step <step> <ns> <pid> <generation> <rank> <ranks>      after a committed step
//   pair <number> <ns with commit> <without> <commit alone>  a pair of timed steps
// All times are of CLOCK_MONOTONIC, which the processes of one machine share.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::bench {

struct Entered {
  std::int64_t time = 0;  // ns
  pid_t pid = 0;
  std::int64_t process_start = 0;
};
struct Step {
  std::int64_t step = 0;
  std::int64_t time = 0;
  pid_t pid = 0;
  std::int64_t generation = 0;
  int rank = 0;
  int ranks = 0;
};
struct TimedPair {
  int number = 0;
  double with_commit = 0;  // ns
  double without = 0;
  double commit = 0;
};

struct StepLog {
  std::vector<Entered> entered;
  std::vector<Step> steps;
  std::vector<TimedPair> pairs;

  // Adds one line; ignores incomplete lines and those of another kind.
  void add_line(std::string_view line);
  // All files in the folder.
  static StepLog read(const std::string& folder);

  // The processes of the newest generation that has committed a step, by rank; without those that have not committed
  // one yet.
  std::map<int, pid_t> newest_ranks() const;
  std::int64_t newest_generation() const;
  // The number of steps that the process has committed.
  int steps_of(pid_t pid) const;
};

// What followed a kill, in seconds after it.
struct Aftermath {
  double step_seconds = 0;  // the median step before the kill
  // The first step, in a later generation, that had not been committed before the kill. It includes the time to repeat
  // steps that were lost.
  double next_step = 0;
  // Of the process that started after the kill and was the first to commit a step: when it was started, asked to join,
  // and committed that step.
  struct Replacement {
    double started = 0;
    double entered = 0;
    double trained = 0;
  };
  std::optional<Replacement> replacement;
};

// nullopt until the next step is committed.
std::optional<Aftermath> aftermath_of(const StepLog& log, std::int64_t kill_time);

// The cost of commit(), over all pairs and ranks.
struct CommitCost {
  double step_seconds = 0;            // without
  double commit_seconds = 0;          // of the last rank to arrive, which waits for no other
  double waiting_seconds = 0;         // of the first rank to arrive
  double share = 0;                   // commit_seconds / step_seconds
  std::vector<double> with, without;  // by pair: the slowest rank
};
// All ranks must have written the same pairs; nullopt if there are none.
std::optional<CommitCost> commit_cost(const StepLog& log);

}  // namespace lockstep::bench
