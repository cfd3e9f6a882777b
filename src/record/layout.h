// The memory of a recorder: what one process has recorded, as other processes see it.
//
// Fixed in size; pages that were never written cost nothing. All zeros is an empty recorder.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "lockstep/record/phase.h"
#include "record/metric_names.h"
#include "record/ring.h"
#include "record/ticks.h"

namespace lockstep::record {

inline constexpr std::uint64_t kMagic = 0x6c6f636b73746570;  // "lockstep"
inline constexpr std::uint32_t kLayoutVersion = 2;

inline constexpr std::size_t kGroups = 16;          // at the same time
inline constexpr std::size_t kOperations = 4096;    // of each group
inline constexpr std::size_t kSpans = 8192;         // of the process
inline constexpr std::size_t kSteps = 256;          // of all models
inline constexpr std::size_t kMetrics = 4096;       // values of the process
inline constexpr std::size_t kBucketSegments = 24;  // further buckets count as the last one

enum class Outcome : std::uint8_t { running, done, failed };

// One collective of a group, by one rank. Times in ticks.
struct OperationRecord {
  std::uint64_t sequence = 0;
  std::uint8_t kind = 0;       // OperationKind
  std::uint8_t algorithm = 0;  // Algorithm
  Outcome outcome = Outcome::running;
  std::uint8_t reserved = 0;
  std::int32_t root = -1;
  std::uint64_t issued = 0;
  std::uint64_t started = 0;   // this rank's arrival; 0: not timed (see OperationLog)
  std::uint64_t finished = 0;  // 0 and done: within 50 us and before the next one started
  std::uint64_t bytes = 0;
  std::uint64_t label = 0;  // the model that issued it; 0: none

  // When the operation ends, these two words change. `finished` is stored before the outcome, which readers read first.
  static constexpr std::size_t kOutcomeWord = 1;
  static constexpr std::size_t kFinishedWord = 4;
  std::uint64_t outcome_word() const { return std::bit_cast<std::array<std::uint64_t, 7>>(*this)[kOutcomeWord]; }
};
static_assert(sizeof(OperationRecord) == 56, "a record and its version are one cache line");

// A part of the training loop. Times in ticks.
struct SpanRecord {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;      // the same as begin: an instant
  std::uint64_t blocked = 0;  // of this, waiting for collectives
  PhaseKind kind = PhaseKind::other;
  std::uint32_t index = 0;  // of the bucket; number of the generation; pass of the model
  std::uint64_t bytes = 0;
  std::uint32_t model = 0;   // which DDP model of this process, from 1; 0: none
  std::uint32_t thread = 0;  // which thread of this process, from 1
  std::uint64_t reserved = 0;
};
static_assert(sizeof(SpanRecord) == 56, "a record and its version are one cache line");

// One synchronised step of a model: how long this rank computed in each part of it, without waiting for others. In
// ticks.
struct StepRecord {
  std::uint64_t number = 0;  // of the model's synchronised backwards, from 1; the same on all ranks
  std::uint64_t end = 0;
  std::uint32_t model = 0;
  std::uint32_t buckets = 0;
  float total = 0;                     // since the end of the step before
  float exposed = 0;                   // waiting at the end of backward
  float own[kPhaseKinds] = {};         // by PhaseKind; backward: all of it
  float bucket[kBucketSegments] = {};  // the part of backward before the bucket was launched
};
static_assert(sizeof(StepRecord) % 8 == 0);

// One value of a metric.
struct MetricRecord {
  std::uint64_t ticks = 0;
  std::int64_t step = 0;
  double value = 0;
  std::uint32_t name = 0;  // its place in RecordArea::metric_names
  std::uint32_t generation = 0;
  std::int32_t rank = -1;  // of the process in the world when it logged the value; -1: unknown
  std::uint32_t reserved = 0;
};
static_assert(sizeof(MetricRecord) == 40);

// The collectives of one group. Used again for another one after the group has ended.
struct GroupRecord {
  // Four times the number of uses so far, plus: 0 free, what the last use recorded is still there; 1 being opened; 2
  // open.
  std::atomic<std::uint64_t> state;
  std::atomic<std::uint32_t> rank;
  std::atomic<std::uint32_t> size;
  std::atomic<std::uint64_t> id;  // hash of the group's id: the same on all its ranks, another for each generation
  std::atomic<char> name[48];
  std::atomic<std::uint64_t> first;  // number in the ring of the first operation of this use
  Ring<OperationRecord, kOperations> operations;
};

struct RecordArea {
  // Written by the one who made the memory.
  std::atomic<std::uint64_t> magic;
  std::atomic<std::uint32_t> layout;
  std::atomic<std::uint32_t> size_check;  // sizeof(RecordArea) in pages
  std::atomic<std::uint64_t> token;       // which the process must name to use it

  // Written by the process that records.
  std::atomic<std::int64_t> pid;  // 0: no process uses it yet
  std::atomic<std::uint32_t> tick_source;
  std::atomic<std::int32_t> rank;  // in the world, plus 1; 0: unknown
  std::atomic<std::int32_t> world_size;
  std::atomic<std::uint32_t> generation;
  std::atomic<std::uint64_t> start_ticks, start_monotonic_ns;
  std::atomic<std::int64_t> start_wall_ns;
  std::atomic<char> host[64];
  // The phase that the training thread is in: kind plus 1, and since when.
  std::atomic<std::uint32_t> current_phase;
  std::atomic<std::uint64_t> current_since;
  std::atomic<std::uint64_t> groups_not_recorded;  // because kGroups were in use
  // The first failure of a group: 0 no, 1 being written, 2 complete.
  std::atomic<std::uint32_t> failure_state;
  std::atomic<std::uint64_t> failure_ticks;
  std::atomic<char> failure[512];

  Ring<SpanRecord, kSpans> spans;
  Ring<StepRecord, kSteps> steps;
  GroupRecord groups[kGroups];

  std::atomic<std::int64_t> step;                   // of the training, as DDP and elastic::run count it
  std::atomic<std::uint64_t> metrics_not_recorded;  // because kMetricNames were in use
  MetricName metric_names[kMetricNames];
  Ring<MetricRecord, kMetrics> metrics;
};

}  // namespace lockstep::record
