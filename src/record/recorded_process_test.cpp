// The recorder of another process: killed, or still running.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "record/operation_log.h"
#include "record/record_memory.h"
#include "record/record_reader.h"
#include "support/process_set.h"

namespace lockstep::record {
namespace {

using lockstep::testing::in_seconds;
using lockstep::testing::ProcessSet;
using lockstep::testing::start_ranks;

LOCKSTEP_PROCESS_ROLE(recorded_rank) {
  Recorder::process().set_world(3, 4, 2);
  const Phase phase(PhaseKind::forward);
  OperationLog log("world", "session", 3, 4);
  for (std::uint64_t i = 1; i <= 9; ++i) {
    log.begin({.sequence = i, .bytes = 64});
    log.end(true, true);
  }
  Recorder::process().set_failure("the group has failed");
  log.begin({.sequence = 10, .bytes = 64});
  ::raise(SIGKILL);
  return 0;
}

// The variable of its parent's recorder, but not its descriptor.
LOCKSTEP_PROCESS_ROLE(rank_without_descriptor) {
  Recorder::process().set_world(1, 2, 0);
  return 0;
}

ProcessSet start_recorded(const std::string& role, const RecordMemory& memory, bool inherits) {
  ::fcntl(memory.fd(), F_SETFD, inherits ? 0 : FD_CLOEXEC);
  return start_ranks(1, role, {.environment = {{kMemoryVariable, memory.variable()}}});
}

TEST(RecordedProcess, WhatItDidOutlivesKillNine) {
  auto memory = RecordMemory::create();
  ASSERT_TRUE(memory.ok());
  RankRecord record;
  EXPECT_FALSE(RecordReader((*memory)->area()).read(record));
  ProcessSet process = start_recorded("recorded_rank", **memory, true);
  ASSERT_TRUE(process.wait_all(in_seconds(20))) << process.report();
  EXPECT_EQ(process.exit_status(0)->signal, SIGKILL);

  record = read_record((*memory)->area());
  EXPECT_EQ(record.pid, process.pid(0));
  EXPECT_EQ(record.rank, 3);
  EXPECT_EQ(record.world_size, 4);
  EXPECT_EQ(record.generation, 2U);
  EXPECT_FALSE(record.host.empty());
  EXPECT_EQ(record.phase, static_cast<int>(PhaseKind::forward));
  EXPECT_EQ(record.failure, "the group has failed");
  ASSERT_EQ(record.groups.size(), 1U);
  EXPECT_EQ(record.groups[0].name, "world");
  ASSERT_EQ(record.groups[0].operations.size(), 10U);
  EXPECT_EQ(record.groups[0].operations[8].outcome, Outcome::done);
  EXPECT_EQ(record.groups[0].operations[9].sequence, 10U);
  EXPECT_EQ(record.groups[0].operations[9].outcome, Outcome::running);
}

TEST(RecordedProcess, RecordsPrivatelyIfTheDescriptorIsNotThere) {
  auto memory = RecordMemory::create();
  ASSERT_TRUE(memory.ok());
  ProcessSet process = start_recorded("rank_without_descriptor", **memory, false);
  ASSERT_TRUE(process.wait_all(in_seconds(20))) << process.report();
  EXPECT_TRUE(process.all_succeeded()) << process.report();
  EXPECT_EQ((*memory)->area().pid.load(), 0);
}

TEST(RecordedProcess, OnlyTheFirstProcessUsesTheMemory) {
  auto memory = RecordMemory::create();
  ASSERT_TRUE(memory.ok());
  ProcessSet first = start_recorded("rank_without_descriptor", **memory, true);
  ASSERT_TRUE(first.wait_all(in_seconds(20)));
  ProcessSet second = start_recorded("rank_without_descriptor", **memory, true);
  ASSERT_TRUE(second.wait_all(in_seconds(20)));
  EXPECT_TRUE(second.all_succeeded()) << second.report();
  EXPECT_EQ((*memory)->area().pid.load(), first.pid(0));
}

}  // namespace
}  // namespace lockstep::record
