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
  const auto lock = FolderLock::take(folder.path(), {}, Deadline::after(std::chrono::seconds(1)));
  ASSERT_TRUE(lock.ok());
  const Status status = write_small(folder.path(), 1, {.lock_timeout = std::chrono::milliseconds(20)}).status();
  EXPECT_EQ(status.code(), StatusCode::already_exists);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("process " + std::to_string(::getpid())), HasSubstr("is writing to")));
}

Result<std::string> write_of_generation(const std::string& folder, const std::string& job, std::int64_t generation,
                                        std::int64_t step) {
  const std::string text = "content";
  const std::vector<OutputFile> files = {{"a.bin", {testing::bytes_of(text)}}};
  return write_snapshot(folder, {.step = step, .job = job, .generation = generation}, files, {.keep_last = 2});
}

TEST(SnapshotWriter, AnOlderGenerationOfTheSameJobIsRefusedAndRemovesNothing) {
  const TestFolder folder;
  ASSERT_TRUE(write_of_generation(folder.path(), "job", 3, 10).ok());
  ASSERT_TRUE(write_of_generation(folder.path(), "job", 4, 11).ok());
  const Status status = write_of_generation(folder.path(), "job", 3, 12).status();
  EXPECT_EQ(status.code(), StatusCode::already_exists);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("the snapshot of step 12"), HasSubstr("snapshot-000002-step-11"),
                                      HasSubstr("generation 4"), HasSubstr("generation 3")));
  EXPECT_THAT(folder.names(), ElementsAre("snapshot-000001-step-10", "snapshot-000002-step-11"));
  // The same generation, a newer one, another job, and a program without a job may write.
  EXPECT_TRUE(write_of_generation(folder.path(), "job", 4, 12).ok());
  EXPECT_TRUE(write_of_generation(folder.path(), "job", 5, 13).ok());
  EXPECT_TRUE(write_of_generation(folder.path(), "next job", 1, 14).ok());
  EXPECT_TRUE(write_small(folder.path(), 15).ok());
}

TEST(SnapshotWriter, ANewerGenerationIsNoticedBehindThoseOfOthers) {
  const TestFolder folder;
  ASSERT_TRUE(write_of_generation(folder.path(), "job", 4, 11).ok());
  ASSERT_TRUE(write_small(folder.path(), 12).ok());
  EXPECT_EQ(write_of_generation(folder.path(), "job", 3, 13).status().code(), StatusCode::already_exists);
}

TEST(SnapshotWriter, ANewerGenerationTakesTheLockOverAndThePreviousHolderNotices) {
  const TestFolder folder;
  const Deadline soon = Deadline::after(std::chrono::seconds(30));
  const auto old = FolderLock::take(folder.path(), {"job", 1}, soon);
  ASSERT_TRUE(old.ok());
  EXPECT_TRUE(old->is_held().ok());
  // Not for another job, nor for the same generation or an older one.
  for (const WriterIdentity& other : {WriterIdentity{"another", 9}, WriterIdentity{"job", 1}, WriterIdentity{}}) {
    const auto refused = FolderLock::take(folder.path(), other, Deadline::after(std::chrono::milliseconds(1500)));
    EXPECT_EQ(refused.status().code(), StatusCode::already_exists) << other.job;
  }
  const auto taken = FolderLock::take(folder.path(), {"job", 2}, soon);
  ASSERT_TRUE(taken.ok()) << taken.status().to_string();
  EXPECT_TRUE(taken->is_held().ok());
  const Status lost = old->is_held();
  EXPECT_EQ(lost.code(), StatusCode::already_exists);
  EXPECT_THAT(lost.message(), AllOf(HasSubstr("of generation 2"), HasSubstr("continues without this process")));
  EXPECT_FALSE(FolderLock::take(folder.path(), {"job", 2}, Deadline::after(std::chrono::milliseconds(50))).ok());
  EXPECT_TRUE(folder.names().empty()) << "temporary files are left";
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
