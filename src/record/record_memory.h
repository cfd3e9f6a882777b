// The memory in which a process records: made by the launcher, and found by the process that it starts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/shared_memory.h"
#include "record/layout.h"

namespace lockstep::record {

// "7:8c3f09b2a1d4e657": the descriptor that a process inherits, and the token of its memory, so that the number of
// another file is not mistaken for it.
inline constexpr const char* kMemoryVariable = "LOCKSTEP_RECORD";

// Memory for one process, as its launcher keeps it.
class RecordMemory {
 public:
  static Result<std::unique_ptr<RecordMemory>> create();

  const RecordArea& area() const { return *area_; }
  // The process must inherit this (without close-on-exec), and the variable.
  int fd() const { return memory_->fd(); }
  std::string variable() const;

 private:
  explicit RecordMemory(std::unique_ptr<SharedMemory> memory);
  std::unique_ptr<SharedMemory> memory_;
  RecordArea* area_;
};

// A mapping of memory that another process made, found as a descriptor: for commands that look at a running job.
// Refuses anything else than a recorder's memory of this version.
Result<std::unique_ptr<SharedMemory>> map_record(UniqueFd fd);
inline const RecordArea& record_area(const SharedMemory& memory) {
  return *reinterpret_cast<const RecordArea*>(memory.data());
}

// The memory for this process: the launcher's if there is one that no other process uses, private memory otherwise.
// Never unmapped. Called once.
RecordArea* map_process_memory();

}  // namespace lockstep::record
