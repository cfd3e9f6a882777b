#include "checkpoint/snapshot_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "checkpoint/folder_lock.h"
#include "checkpoint/snapshot_directory.h"
#include "checkpoint/testing/test_folder.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::set_content;
using testing::TestFolder;
using testing::write_small;

TEST(SnapshotWriter, CreatesTheFolderAndLeavesNoTemporaryFiles) {
  const TestFolder folder;
  const std::string inner = folder.path("a") + "/b/c";
  ASSERT_TRUE(write_small(inner, 5).ok());
  EXPECT_THAT(TestFolder::names_in(inner), ElementsAre("snapshot-000001-step-5"));
  EXPECT_THAT(TestFolder::names_in(inner + "/snapshot-000001-step-5"), ElementsAre("a.bin", "b.bin", "snapshot.json"));
}

TEST(SnapshotWriter, KeepsTheLast) {
  const TestFolder folder;
  for (int step = 1; step <= 5; ++step) ASSERT_TRUE(write_small(folder.path(), step, {.keep_last = 2}).ok());
  EXPECT_THAT(folder.names(), ElementsAre("snapshot-000004-step-4", "snapshot-000005-step-5"));
  ASSERT_TRUE(write_small(folder.path(), 6, {.keep_last = 1}).ok());
  EXPECT_THAT(folder.names(), ElementsAre("snapshot-000006-step-6"));
}

TEST(SnapshotWriter, DamagedOnesDoNotCountAsKept) {
  const TestFolder folder;
  for (int step = 1; step <= 3; ++step) ASSERT_TRUE(write_small(folder.path(), step).ok());
  set_content(folder.path("snapshot-000002-step-2/a.bin"), "x");
  set_content(folder.path("snapshot-000003-step-3/snapshot.json"), "{");
  ASSERT_TRUE(write_small(folder.path(), 4, {.keep_last = 2}).ok());
  EXPECT_THAT(folder.names(), ElementsAre("snapshot-000001-step-1", "snapshot-000002-step-2", "snapshot-000003-step-3",
                                          "snapshot-000004-step-4"));
  ASSERT_TRUE(write_small(folder.path(), 5, {.keep_last = 2}).ok());
  EXPECT_THAT(folder.names(), ElementsAre("snapshot-000004-step-4", "snapshot-000005-step-5"));
}

TEST(SnapshotWriter, RemovesWhatDeadWritersLeft) {
  const TestFolder folder;
  for (const char* name : {".tmp-snapshot-000001-step-7", ".tmp-old-snapshot-000001-step-7"}) {
    std::filesystem::create_directory(folder.path(name));
    set_content(folder.path(name) + "/model.safetensors", "half");
  }
  set_content(folder.path("notes.txt"), "the user's own");
  ASSERT_TRUE(write_small(folder.path(), 7).ok());
  EXPECT_THAT(folder.names(), ElementsAre("notes.txt", "snapshot-000001-step-7"));
}

TEST(SnapshotWriter, AFileInPlaceOfTheFolderIsReported) {
  const TestFolder folder;
  set_content(folder.path("file"), "x");
  for (const std::string& path : {folder.path("file"), folder.path("file/deeper")}) {
    const Status status = write_small(path, 5).status();
    EXPECT_EQ(status.code(), StatusCode::unavailable);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("the snapshot of step 5"), HasSubstr(path), HasSubstr("is a file, not a folder")));
  }
}

TEST(SnapshotWriter, KeepingNoneIsRefused) {
  const TestFolder folder;
  EXPECT_EQ(write_small(folder.path(), 1, {.keep_last = 0}).status().code(), StatusCode::invalid_argument);
}

TEST(SnapshotWriter, AFailedWriteLeavesTheOldOnesAndNothingElse) {
  const TestFolder folder;
  ASSERT_TRUE(write_small(folder.path(), 1).ok());
  const std::vector<OutputFile> twice = {{"a.bin", {}}, {"a.bin", {}}};
  EXPECT_FALSE(write_snapshot(folder.path(), {}, twice).ok());
  EXPECT_THAT(folder.names(), ElementsAre("snapshot-000001-step-1"));
}

TEST(SnapshotWriter, TheOtherWriterIsNamedAtTheDeadline) {
  const TestFolder folder;
  const auto lock = FolderLock::take(folder.path(), Deadline::after(std::chrono::seconds(1)));
  ASSERT_TRUE(lock.ok());
  const Status status = write_small(folder.path(), 1, {.lock_timeout = std::chrono::milliseconds(20)}).status();
  EXPECT_EQ(status.code(), StatusCode::already_exists);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("process " + std::to_string(::getpid())), HasSubstr("is writing to")));
}

TEST(SnapshotWriter, WritersTakeTurns) {
  const TestFolder folder;
  constexpr int kWriters = 4, kEach = 5;
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      for (int i = 0; i < kEach; ++i) EXPECT_TRUE(write_small(folder.path(), 10 * writer + i, {.keep_last = 100}).ok());
    });
  }
  for (std::thread& writer : writers) writer.join();
  const auto names = list_snapshots(folder.path()).value();
  ASSERT_EQ(names.size(), std::size_t{kWriters} * kEach);
  for (const SnapshotName& name : names) EXPECT_TRUE(read_snapshot(folder.path(name.to_string())).ok());
}

}  // namespace
}  // namespace lockstep::checkpoint
