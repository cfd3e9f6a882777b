// The recorder of this process: always on, fixed in memory, without locks or allocations once it exists.
//
// Its memory is a memfd that the launcher made and passed on (record_memory.h), so that the launcher can read it at any
// time, also after the process was killed. Without a launcher it is private memory. A child that this process forks
// gets memory of its own.
//
// Thread-safe. Nothing here blocks or fails: what cannot be recorded is left out.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "record/layout.h"

namespace lockstep::record {

class Recorder {
 public:
  // Created by the first call.
  static Recorder& process();

  RecordArea& area() { return *area_; }

  // This process' rank in the world, and the generation of that world (0: it has none).
  void set_world(int rank, int world_size, std::uint32_t generation);
  // The number of the training's steps so far. The second one only increases it.
  void set_step(std::int64_t step) { area_->step.store(step); }
  void advance_step(std::int64_t step);
  void add(const SpanRecord& span) { area_->spans.add(span); }
  void add(const StepRecord& step) { area_->steps.add(step); }
  void instant(PhaseKind kind, std::uint32_t index);
  // Only the first failure of the process is kept.
  void set_failure(std::string_view reason);

  // A free GroupRecord; null if all are in use.
  GroupRecord* open_group(std::string_view name, std::string_view id, int rank, int size);
  static void close_group(GroupRecord* group);

  // A number for a new DDP model of this process.
  std::uint32_t next_model() { return models_.fetch_add(1) + 1; }

 private:
  explicit Recorder(RecordArea* area) : area_(area) {}
  RecordArea* const area_;
  std::atomic<std::uint32_t> models_{0};
};

// Off only in the benchmark that measures what recording operations costs.
inline std::atomic<bool> operations_are_recorded{true};

// Times of this thread, in ticks since it started; only it uses them.
struct ThreadTimes {
  std::uint64_t blocked = 0;               // waiting for collectives
  std::uint64_t marked[kPhaseKinds] = {};  // inside Phase objects, without inner ones and without waiting
  std::uint64_t inner = 0;                 // inside Phase objects that have ended
  std::uint32_t thread = 0;                // its number in this process, from 1; 0: not assigned yet
};
ThreadTimes& thread_times();
// Its number in this process, from 1.
std::uint32_t thread_number();

}  // namespace lockstep::record
