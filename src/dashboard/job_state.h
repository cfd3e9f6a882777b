// What the dashboard shows: the state of the ranks that one launcher started, as data. Functions that describe, encode
// or compare it are pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dashboard/curve.h"
#include "dashboard/process_usage.h"
#include "lockstep/record/phase.h"
#include "lockstep/record/straggler.h"

namespace lockstep::dashboard {

enum class RankCondition : std::uint8_t {
  starting,  // its process runs, and has not recorded anything yet
  running,
  finished,  // ended successfully
  failed,    // ended otherwise
};

// Averages over the recent steps of one rank, in seconds.
struct StepSplit {
  int steps = 0;  // over how many; 0: the rest means nothing
  double total = 0;
  double exposed = 0;                        // waiting for communication at the end of backward
  std::array<double, kPhaseKinds> own = {};  // by PhaseKind
  std::vector<double> buckets = {};          // the part of backward before each bucket was complete
};

struct RankState {
  std::string name = {};  // "rank 2", "worker 0"
  int rank = -1;          // in the world; -1: not known yet
  int local_rank = 0;
  std::string host = {};
  std::int64_t pid = 0;
  int starts = 1;  // of this local rank, this one included
  RankCondition condition = RankCondition::starting;
  std::string end = {};  // "signal 9 (SIGKILL)"; empty unless it failed
  std::uint32_t generation = 0;

  std::uint64_t step = 0;  // the number of its last complete step; 0: none
  double step_age = 0;     // seconds since it ended
  std::string phase = {};  // empty: none
  double phase_age = 0;
  std::string operation = {};  // "all_reduce #17 of 'world'", while one runs
  double operation_age = 0;
  std::string failure = {};  // the first failure of a group that it recorded

  StepSplit split = {};
  std::optional<ProcessUsage> usage = {};
  // Since the process started, in seconds.
  double counted_exposed = 0;
  std::array<double, kPhaseKinds> counted_own = {};
  std::uint64_t counted_steps = 0;
  std::uint64_t counted_snapshots = 0;
};

enum class EventKind : std::uint8_t { message, failure, generation, snapshot, start, end };
std::string_view to_string(EventKind kind);

struct JobEvent {
  std::uint64_t tick = 0;  // of the sample that saw it
  double time = 0;         // seconds since 1970
  EventKind kind = EventKind::message;
  std::string text = {};
};

// Constant while the job runs.
struct JobFacts {
  std::string command = {};
  std::string run_id = {};
  std::string host = {};
  std::int64_t launcher_pid = 0;
  bool elastic = false;
  int ranks = 0;       // that this launcher starts
  double started = 0;  // seconds since 1970
};

// The curve of JobState::steps_per_second, whose x is "time". A metric of the program may have the same name; its x is
// "step".
inline constexpr std::string_view kSpeedCurve = "steps per second";

struct JobState {
  JobFacts facts = {};
  std::uint64_t tick = 0;  // counts samples, from 1
  double now = 0;          // seconds since 1970
  int node = 0;            // of this launcher, among `nodes`
  int nodes = 1;
  int world_size = 0;  // 0: not known yet
  int round = 0;
  std::vector<RankState> ranks = {};  // by rank
  StragglerReport stragglers = {};
  double steps_per_second = 0;              // of the recent steps; 0: unknown
  std::optional<double> seconds_left = {};  // nothing: unknown
  // For each collective that has been waiting: which ranks have not reached it.
  std::vector<std::string> waiting = {};
  std::vector<Curve> curves = {};
  std::vector<JobEvent> events = {};  // oldest first
  std::uint64_t failures = 0;         // ranks that failed first, not those that failed or were stopped because of them
  std::optional<std::string> conclusion = {};  // set once the job is over: how it ended
  bool succeeded = false;                      // valid if there is a conclusion
};

// Pure.
struct Summary {
  enum class Level : std::uint8_t { good, attention, bad, over } level = Level::good;
  std::string sentence = {};  // the state of the job
};
Summary summarise(const JobState& state);

}  // namespace lockstep::dashboard
