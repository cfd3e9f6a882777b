// Follows the ranks of one launcher: what they record, what they use, and what the launcher reports.
//
// The launcher's thread reports what happens; these calls only append to a list. One other thread samples: it reads the
// ranks' records, in which no rank takes part.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dashboard/job_state.h"
#include "dashboard/metric_curves.h"
#include "record/record_memory.h"
#include "record/record_reader.h"

namespace lockstep::dashboard {

struct RankStart {
  std::string name = {};  // "rank 2", "worker 0"
  int rank = -1;          // -1: not known yet
  int local_rank = 0;
  std::string host = {};
  std::int64_t pid = 0;
  std::shared_ptr<const record::RecordMemory> memory = {};  // null: it is not recorded
};

class JobSampler {
 public:
  static constexpr std::size_t kMostEvents = 500;
  static constexpr std::size_t kLongestEvent = 4096;  // characters

  explicit JobSampler(JobFacts facts);

  // Thread-safe. Never wait for a sample.
  void round_began(int number, int node, int nodes, int world_size);
  void rank_started(RankStart start);
  // `how`: "signal 9 (SIGKILL)"; empty if it succeeded. `consequence`: another rank's failure was the cause.
  void rank_ended(std::int64_t pid, const std::string& how, bool consequence);
  void message(EventKind kind, std::string_view text);
  void job_ended(bool succeeded, const std::string& conclusion);

  // By one thread at a time. The result is valid until the next call.
  const JobState& sample();
  const JobState& state() const { return state_; }

 private:
  // One process of a rank.
  struct Source {
    explicit Source(RankStart start);
    RankStart start;
    std::unique_ptr<record::RecordReader> reader;  // null: it is not recorded
    record::RankRecord record = {};
    RankState shown = {};
    bool ended = false;  // its memory is released; only `shown` remains
  };
  using Notice = std::function<void(JobSampler&)>;

  void notify(Notice notice);
  void add_event(EventKind kind, std::string text);
  void start(const RankStart& start);
  void end(std::int64_t pid, const std::string& how, bool consequence);
  void read(Source& source, std::int64_t now_ns);
  void count_steps(Source& source, std::size_t first);
  void note_snapshots(Source& source);
  static void read_usage(Source& source, double elapsed);
  void follow_speed(std::int64_t now_ns);
  void compare_ranks();
  Curve& curve(const std::string& name, const std::string& x_name);
  const Source* leading() const;

  std::mutex mutex_;
  std::vector<Notice> notices_;  // guarded by mutex_

  // Of the thread that samples.
  std::vector<std::unique_ptr<Source>> sources_;  // one for each local rank
  JobState state_;
  MetricCurves metrics_;
  std::int64_t usage_ns_ = 0;  // CLOCK_MONOTONIC: the wall clock may be set back
  std::int64_t last_snapshot_ns_ = 0;
  std::uint64_t last_snapshot_step_ = 0;
};

}  // namespace lockstep::dashboard
