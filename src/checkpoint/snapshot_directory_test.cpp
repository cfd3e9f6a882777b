#include "checkpoint/snapshot_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/testing/test_folder.h"

namespace lockstep::checkpoint {
namespace {

using testing::bytes_of;
using testing::content_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::set_content;
using testing::TestFolder;
using testing::write_small;

TEST(SnapshotName, HasOneSpelling) {
  const SnapshotName name{17, 3400};
  EXPECT_EQ(name.to_string(), "snapshot-000017-step-3400");
  EXPECT_EQ(SnapshotName::parse(name.to_string()), name);
  EXPECT_EQ(SnapshotName::parse("snapshot-12345678-step--5"), (SnapshotName{12345678, -5}));
  for (const char* text : {"", "snapshot-", "snapshot-17-step-3400", "snapshot-000017-step-", "snapshot-000017-step-3x",
                           "snapshot-000017-step-03", ".tmp-snapshot-000017-step-3400", "snapshot-step-1",
                           "snapshot--00001-step-1", "snapshot-99999999999999999999-step-1"}) {
    EXPECT_FALSE(SnapshotName::parse(text).has_value()) << text;
  }
}

TEST(SnapshotDirectory, ReadsWhatWasWritten) {
  const TestFolder folder;
  const auto path = write_small(folder.path(), 12);
  ASSERT_TRUE(path.ok()) << path.status().to_string();
  const auto newest = read_newest_snapshot(folder.path());
  ASSERT_TRUE(newest.ok()) << newest.status().to_string();
  ASSERT_TRUE(newest->snapshot.has_value());
  EXPECT_EQ(newest->snapshot->path, *path);
  EXPECT_EQ(newest->snapshot->manifest.step, 12);
  EXPECT_EQ(std::get<std::string>(newest->snapshot->manifest.values.at("text")), "content");
  EXPECT_EQ(newest->snapshot->files.at("a.bin").text(), "content");
  EXPECT_EQ(newest->snapshot->files.at("b.bin").text(), "content.12");
  EXPECT_TRUE(newest->skipped_snapshots.empty());
}

TEST(SnapshotDirectory, HavingNoSnapshotIsNotAnError) {
  const TestFolder folder;
  EXPECT_FALSE(read_newest_snapshot(folder.path()).value().snapshot.has_value());
  EXPECT_FALSE(read_newest_snapshot(folder.path("missing")).value().snapshot.has_value());
}

TEST(SnapshotDirectory, AFileInPlaceOfTheFolderIsAnError) {
  const TestFolder folder;
  set_content(folder.path("file"), "x");
  EXPECT_THAT(read_newest_snapshot(folder.path("file")).status().message(), HasSubstr("is a file, not a folder"));
}

TEST(SnapshotDirectory, TheSerialNumberDecidesWhichIsNewer) {
  const TestFolder folder;
  for (const std::int64_t step : {100, 200, 150}) ASSERT_TRUE(write_small(folder.path(), step).ok());
  EXPECT_THAT(list_snapshots(folder.path()).value(),
              ElementsAre(SnapshotName{3, 150}, SnapshotName{2, 200}, SnapshotName{1, 100}));
  EXPECT_EQ(read_newest_snapshot(folder.path()).value().snapshot->manifest.step, 150);
}

// Whatever happens to any file of the newest snapshot, it is passed over with the reason, and the one before is taken.
void expect_passed_over(const std::string& folder, const std::string& broken, const std::string& what) {
  const auto newest = read_newest_snapshot(folder);
  ASSERT_TRUE(newest.ok()) << what << ": " << newest.status().to_string();
  ASSERT_TRUE(newest->snapshot.has_value()) << what;
  EXPECT_EQ(newest->snapshot->manifest.step, 1) << what;
  ASSERT_EQ(newest->skipped_snapshots.size(), 1U) << what;
  EXPECT_EQ(newest->skipped_snapshots[0].path, broken);
  EXPECT_THAT(newest->skipped_snapshots[0].reason, HasSubstr(broken)) << what;
}

class DamagedSnapshot : public ::testing::TestWithParam<std::string> {
 protected:
  DamagedSnapshot() {
    EXPECT_TRUE(write_small(folder_.path(), 1).ok());
    broken_ = write_small(folder_.path(), 2).value();
    file_ = broken_ + "/" + GetParam();
    content_ = content_of(file_);
    EXPECT_FALSE(content_.empty());
  }
  const TestFolder folder_;
  std::string broken_, file_, content_;
};
INSTANTIATE_TEST_SUITE_P(Files, DamagedSnapshot, ::testing::Values("a.bin", "b.bin", "snapshot.json"),
                         [](const auto& info) { return info.param.substr(0, info.param.find('.')); });

TEST_P(DamagedSnapshot, CutOffAtAnyByteIsSkipped) {
  for (std::size_t size = 0; size < content_.size(); ++size) {
    set_content(file_, content_.substr(0, size));
    expect_passed_over(folder_.path(), broken_, "cut off at " + std::to_string(size));
  }
  set_content(file_, content_ + "x");
  expect_passed_over(folder_.path(), broken_, "longer");
}

TEST_P(DamagedSnapshot, WithAFlippedBitAnywhereIsSkipped) {
  for (std::size_t i = 0; i < content_.size(); ++i) {
    std::string flipped = content_;
    flipped[i] = static_cast<char>(flipped[i] ^ (1 << (i % 8)));
    set_content(file_, flipped);
    expect_passed_over(folder_.path(), broken_, "flipped at " + std::to_string(i));
  }
  set_content(file_, content_);
  EXPECT_EQ(read_newest_snapshot(folder_.path()).value().snapshot->manifest.step, 2);
}

TEST_P(DamagedSnapshot, WithAMissingFileIsSkipped) {
  std::filesystem::remove(file_);
  expect_passed_over(folder_.path(), broken_, "missing");
  std::filesystem::create_directory(file_);
  expect_passed_over(folder_.path(), broken_, "a folder instead");
}

TEST(SnapshotDirectory, IfNoSnapshotIsValidTheErrorListsAllReasons) {
  const TestFolder folder;
  for (const std::int64_t step : {1, 2}) set_content(write_small(folder.path(), step).value() + "/a.bin", "x");
  const Status status = read_newest_snapshot(folder.path()).status();
  EXPECT_EQ(status.code(), StatusCode::protocol_error);
  EXPECT_THAT(status.message(), ::testing::AllOf(HasSubstr("none of the 2 snapshots"), HasSubstr("000001-step-1/a.bin"),
                                                 HasSubstr("000002-step-2/a.bin"), HasSubstr("1 bytes instead of 7")));
}

}  // namespace
}  // namespace lockstep::checkpoint
