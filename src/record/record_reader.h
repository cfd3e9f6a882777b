// Reads what a process has recorded, from this or another process, while it records or after its end. Texts are safe to
// print, whatever the process has written (see printable_line()).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "record/layout.h"

namespace lockstep::record {

// Times in nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share.
struct RecordedOperation {
  std::uint64_t sequence = 0;
  std::int64_t issued_ns = 0;
  std::int64_t started_ns = 0;   // the rank's arrival
  std::int64_t finished_ns = 0;  // 0: still running, or its end was not seen
  bool timed = true;             // false: one of a series of short ones; it started after the one before
  std::uint64_t bytes = 0;
  std::uint64_t label = 0;
  int root = -1;
  std::uint8_t kind = 0;       // OperationKind
  std::uint8_t algorithm = 0;  // Algorithm
  Outcome outcome = Outcome::running;
};

struct RecordedGroup {
  std::uint64_t id = 0;  // the same on all ranks of the group
  std::string name;
  int rank = 0;  // this process' in the group
  int size = 0;
  std::vector<RecordedOperation> operations = {};
};

struct RecordedSpan {
  PhaseKind kind = PhaseKind::other;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t blocked_ns = 0;
  std::uint32_t index = 0;
  std::uint64_t bytes = 0;
  std::uint32_t model = 0;
  std::uint32_t thread = 0;
};

// In seconds.
struct RecordedStep {
  std::uint64_t number = 0;
  std::uint32_t model = 0;
  std::int64_t end_ns = 0;
  float total = 0;
  float exposed = 0;
  std::uint32_t buckets = 0;
  std::array<float, kPhaseKinds> own = {};
  std::array<float, kBucketSegments> bucket = {};
};

struct RecordedMetric {
  std::string name;
  double value = 0;
  std::int64_t step = 0;
  std::int64_t time_ns = 0;
  int rank = -1;  // of the process in the world, when it logged the value; -1: unknown
  std::uint32_t generation = 0;
};

struct RankRecord {
  std::int64_t pid = 0;
  int rank = -1;  // in the world; -1: unknown
  int world_size = 0;
  std::uint32_t generation = 0;
  std::string host = {};
  std::int64_t wall_offset_ns = 0;  // CLOCK_REALTIME minus CLOCK_MONOTONIC, when the process started
  std::vector<RecordedGroup> groups = {};
  std::vector<RecordedSpan> spans = {};
  std::vector<RecordedStep> steps = {};
  std::vector<RecordedMetric> metrics = {};
  std::int64_t step = 0;     // of the training so far
  std::string failure = {};  // empty: none
  std::int64_t failure_ns = 0;
  // The phase that the process is in, and since when; -1: none.
  int phase = -1;
  std::int64_t phase_since_ns = 0;
  std::uint64_t metrics_not_recorded = 0;  // values, because there were too many names
  std::uint64_t lost = 0;                  // records that were overwritten before they were read
};

// Remembers how far it has read. Not thread-safe.
class RecordReader {
 public:
  // `area` must outlive this. `activity_only`: see read_activity().
  explicit RecordReader(const RecordArea& area, bool activity_only = false)
      : area_(area), activity_only_(activity_only) {}

  // False if no process has used the memory yet. Adds what is new to `record`, always the same one. A reader that calls
  // this at least once for each time that a ring comes round misses nothing. After the process has ended, the second
  // call returns what threads recorded while another one was killed in recording.
  bool read(RankRecord& record);
  // The same for the metrics and what the process is; the rest of `record` stays as it is.
  bool read_metrics(RankRecord& record);
  // Whether it will read more operations of this group of the record: no other group uses its memory yet.
  bool follows(std::size_t group) const;
  // Removes the groups of `record` whose memory another group uses by now, so that at most kGroups remain; if
  // `only_empty`, those of them without operations. For readers that follow a process for long.
  void drop_replaced_groups(RankRecord& record, bool only_empty = false);

 private:
  struct GroupPosition {
    std::uint64_t use = 0;  // the one that is being read, from 1
    std::uint64_t next = 0;
    std::size_t index = 0;  // in RankRecord::groups
  };
  void read_identity(RankRecord& record, const TickScale& scale) const;
  void add_metrics(RankRecord& record, const TickScale& scale);
  void read_group(const GroupRecord& group, GroupPosition& position, RankRecord& record, const TickScale& scale);
  void read_operations(const GroupRecord& group, GroupPosition& position, std::uint64_t end, RankRecord& record,
                       const TickScale& scale);

  const RecordArea& area_;
  const bool activity_only_;
  std::array<GroupPosition, kGroups> groups_ = {};
  std::uint64_t next_span_ = 0;
  std::uint64_t next_step_ = 0;
  std::uint64_t next_metric_ = 0;
  std::uint64_t unfinished_metric_ = 0;  // the number, plus 1, of one that was being written the last time
};

// The latest steps of a model, at most `count`, oldest first.
std::vector<RecordedStep> recent_steps(const RecordArea& area, std::uint32_t model, std::size_t count);

// Everything that is there now.
RankRecord read_record(const RecordArea& area);
// Only what the process is doing: of each group that exists the latest operation, without spans and steps. Cheap enough
// to call every second.
RankRecord read_activity(const RecordArea& area);

}  // namespace lockstep::record
