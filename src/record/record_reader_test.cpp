#include "record/record_reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "record/operation_log.h"
#include "record/record_memory.h"

namespace lockstep::record {
namespace {

const RecordedGroup* find_group(const RankRecord& record, const std::string& name) {
  for (const auto& group : record.groups) {
    if (group.name == name) return &group;
  }
  return nullptr;
}

RankRecord own_record() { return read_record(Recorder::process().area()); }

TEST(RecordReader, ReadsOperationsOfAGroup) {
  OperationLog log("reader test", "id 1", 1, 4);
  const auto before = static_cast<std::int64_t>(monotonic_ns());
  log.begin({.sequence = 1, .kind = 3, .root = 2, .bytes = 800, .label = 7});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  log.end(true, false);
  log.begin({.sequence = 2});
  const RankRecord record = own_record();
  const auto after = static_cast<std::int64_t>(monotonic_ns());
  const RecordedGroup* const group = find_group(record, "reader test");
  ASSERT_NE(group, nullptr);
  EXPECT_EQ(group->rank, 1);
  EXPECT_EQ(group->size, 4);
  ASSERT_EQ(group->operations.size(), 2U);
  const RecordedOperation& first = group->operations[0];
  EXPECT_EQ(first.sequence, 1U);
  EXPECT_EQ(first.bytes, 800U);
  EXPECT_EQ(first.label, 7U);
  EXPECT_EQ(first.root, 2);
  EXPECT_EQ(first.kind, 3);
  EXPECT_EQ(first.outcome, Outcome::done);
  // The rate of the counter is known to some 10^-5, and the process may have run for minutes.
  constexpr std::int64_t kTolerance = 5'000'000;
  EXPECT_GE(first.started_ns, before - kTolerance);
  EXPECT_GE(first.finished_ns - first.started_ns, 19'000'000);
  EXPECT_LE(first.finished_ns, after + kTolerance);
  EXPECT_EQ(group->operations[1].outcome, Outcome::running);
  EXPECT_EQ(group->operations[1].finished_ns, 0);
  log.end(false, false);
  EXPECT_EQ(find_group(own_record(), "reader test")->operations[1].outcome, Outcome::failed);
}

TEST(RecordReader, ReturnsTextsThatATerminalCanShow) {
  const OperationLog log("wörld\x1b[2J\xff\nof \xc2\x9b" + std::string(40, 'x'), "id text", 0, 2);
  const auto record = own_record();
  const std::string expected = "wörld?[2J? of ?" + std::string(30, 'x');
  EXPECT_NE(find_group(record, expected), nullptr) << record.groups.back().name;
  const OperationLog cut(std::string(46, 'y') + "ö", "id cut", 0, 2);
  EXPECT_NE(find_group(own_record(), std::string(46, 'y')), nullptr) << "a part of a character is left out";
}

TEST(RecordReader, BoundsTheEndOfShortOperations) {
  OperationLog log("short operations", "id 2", 0, 2);
  for (std::uint64_t i = 1; i <= 100; ++i) {
    log.begin({.sequence = i});
    log.end(true, false);
  }
  const RankRecord record = own_record();
  const auto& operations = find_group(record, "short operations")->operations;
  ASSERT_EQ(operations.size(), 100U);
  EXPECT_TRUE(operations[0].timed);
  for (std::size_t i = 0; i + 1 < operations.size(); ++i) {
    EXPECT_GE(operations[i].finished_ns, operations[i].started_ns);
    EXPECT_LE(operations[i].finished_ns, operations[i + 1].started_ns);
  }
}

TEST(RecordReader, DropsGroupsThatOthersHaveReplaced) {
  RecordReader reader(Recorder::process().area());
  RankRecord record;
  OperationLog lasting("lasting", "id lasting", 0, 2);
  for (int i = 0; i < 100; ++i) {
    const OperationLog log("passing " + std::to_string(i), "id passing", 0, 2);
    reader.read(record);
    reader.drop_replaced_groups(record);
    EXPECT_LE(record.groups.size(), kGroups);
    EXPECT_NE(find_group(record, "passing " + std::to_string(i)), nullptr);
  }
  lasting.begin({.sequence = 1});
  lasting.end(true, true);
  reader.read(record);
  ASSERT_NE(find_group(record, "lasting"), nullptr);
  EXPECT_EQ(find_group(record, "lasting")->operations.size(), 1U);
}

TEST(RecordReader, ReadsEachOperationOnceWhileTheyRun) {
  OperationLog log("incremental", "id 3", 0, 2);
  RecordReader reader(Recorder::process().area());
  RankRecord record;
  for (std::uint64_t i = 1; i <= 5; ++i) {
    log.begin({.sequence = i});
    ASSERT_TRUE(reader.read(record));
    EXPECT_EQ(find_group(record, "incremental")->operations.back().outcome, Outcome::running);
    log.end(true, true);
  }
  reader.read(record);
  const auto& operations = find_group(record, "incremental")->operations;
  ASSERT_EQ(operations.size(), 5U);
  for (std::uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(operations[i].sequence, i + 1);
    EXPECT_EQ(operations[i].outcome, Outcome::done);
    EXPECT_GT(operations[i].finished_ns, 0);
  }
}

TEST(RecordReader, CountsWhatWasOverwritten) {
  OperationLog log("overwritten", "id 4", 0, 2);
  RecordReader reader(Recorder::process().area());
  RankRecord record;
  reader.read(record);
  const std::uint64_t lost_before = record.lost;
  for (std::uint64_t i = 1; i <= kOperations + 10; ++i) {
    log.begin({.sequence = i});
    log.end(true, false);
  }
  reader.read(record);
  EXPECT_EQ(find_group(record, "overwritten")->operations.front().sequence, 11U);
  EXPECT_EQ(record.lost - lost_before, 10U);
}

TEST(RecordReader, SeparatesGroupsThatUsedTheSameMemory) {
  RecordReader reader(Recorder::process().area());
  RankRecord record;
  for (std::size_t use = 0; use < 2 * kGroups; ++use) {
    OperationLog log("generation " + std::to_string(use), "id " + std::to_string(use), 0, 2);
    log.begin({.sequence = use + 1});
    log.end(true, true);
    reader.read(record);
  }
  for (std::size_t use = 0; use < 2 * kGroups; ++use) {
    const RecordedGroup* const group = find_group(record, "generation " + std::to_string(use));
    ASSERT_NE(group, nullptr) << use;
    ASSERT_EQ(group->operations.size(), 1U);
    EXPECT_EQ(group->operations[0].sequence, use + 1);
  }
}

TEST(Recorder, CountsGroupsForWhichThereIsNoMemory) {
  std::vector<std::unique_ptr<OperationLog>> logs;
  const auto& area = Recorder::process().area();
  const std::uint64_t before = area.groups_not_recorded.load();
  for (std::size_t i = 0; i <= kGroups; ++i) logs.push_back(std::make_unique<OperationLog>("many", "many", 0, 1));
  logs.back()->begin({.sequence = 1});
  logs.back()->end(true, true);
  EXPECT_EQ(area.groups_not_recorded.load() - before, 1U);
}

TEST(Phase, TimeOfAnInnerPhaseCountsOnceOnly) {
  const auto marked = [](PhaseKind kind) { return thread_times().marked[static_cast<std::size_t>(kind)]; };
  const std::uint64_t data = marked(PhaseKind::data);
  const std::uint64_t user = marked(PhaseKind::user);
  const std::uint64_t begin = now_ticks();
  {
    const Phase outer(PhaseKind::data);
    const Phase inner(PhaseKind::user);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const std::uint64_t whole = now_ticks() - begin;
  EXPECT_GT(marked(PhaseKind::user) - user, whole / 2);
  EXPECT_LE(marked(PhaseKind::user) - user + marked(PhaseKind::data) - data, whole);
}

TEST(Phase, IsRecordedWithItsThread) {
  { const Phase phase(PhaseKind::optimizer, 42); }
  const RankRecord record = own_record();
  ASSERT_FALSE(record.spans.empty());
  const RecordedSpan& span = record.spans.back();
  EXPECT_EQ(span.kind, PhaseKind::optimizer);
  EXPECT_EQ(span.index, 42U);
  EXPECT_EQ(span.thread, thread_number());
}

TEST(Recorder, AForkedChildDoesNotWriteIntoItsParentsRecord) {
  Recorder::process().instant(PhaseKind::user, 1);
  const std::uint64_t before = Recorder::process().area().spans.count();
  const pid_t child = ::fork();
  if (child == 0) {
    Recorder::process().instant(PhaseKind::user, 2);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Recorder::process().area().spans.count(), before);
}

TEST(RecordMemory, RefusesOtherMemory) {
  EXPECT_FALSE(map_record(UniqueFd()).ok());
  EXPECT_FALSE(map_record(UniqueFd(::open("/dev/null", O_RDWR))).ok());
  auto zeros = SharedMemory::create(sizeof(RecordArea), "zeros");
  ASSERT_TRUE(zeros.ok());
  EXPECT_FALSE(map_record(UniqueFd(::dup((*zeros)->fd()))).ok());
  auto record = RecordMemory::create();
  ASSERT_TRUE(record.ok());
  EXPECT_TRUE(map_record(UniqueFd(::dup((*record)->fd()))).ok());
}

}  // namespace
}  // namespace lockstep::record
