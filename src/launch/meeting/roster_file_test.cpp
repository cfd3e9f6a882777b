#include "launch/meeting/roster_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "launch/process/runtime_directory.h"
#include "membership/roster.h"

namespace lockstep::launch {
namespace {

class RosterFileTest : public ::testing::Test {
 protected:
  // As ranks do.
  void accept(std::int64_t number, const std::string& id) const {
    ASSERT_TRUE(membership::offer_roster(path(), {.generation = {.number = number, .id = id}}).ok());
  }
  static std::string roster(std::int64_t number, const std::string& id) {
    return membership::format(membership::Roster{.generation = {.number = number, .id = id}});
  }
  std::string path() const { return folder_.path() + "/roster"; }

  RuntimeDirectory folder_ = *RuntimeDirectory::create(process_environment());
  RosterFile file_{path()};
};

TEST_F(RosterFileTest, ReturnsEachNewerRosterOnce) {
  EXPECT_FALSE(file_.take_newer());
  accept(1, "a");
  EXPECT_EQ(file_.take_newer(), roster(1, "a"));
  EXPECT_FALSE(file_.take_newer());
  accept(2, "b");
  EXPECT_EQ(file_.take_newer(), roster(2, "b"));
  EXPECT_FALSE(file_.take_newer());
}

TEST_F(RosterFileTest, AcceptsOnlyNewerRostersFromOtherNodes) {
  accept(3, "mine");
  ASSERT_TRUE(file_.take_newer());
  ASSERT_TRUE(file_.offer(roster(3, "theirs")).ok());
  EXPECT_FALSE(file_.take_newer());
  EXPECT_EQ(membership::read_roster(path()).value().generation.id, "mine");
  ASSERT_TRUE(file_.offer(roster(4, "theirs")).ok());
  EXPECT_FALSE(file_.take_newer()) << "a roster from another node is not returned again";
  EXPECT_EQ(membership::read_roster(path()).value().generation.number, 4);
  EXPECT_EQ(membership::newest_number(path()).value(), 4);
  ASSERT_TRUE(file_.offer(roster(4, "theirs")).ok()) << "a second offer changes nothing";
  EXPECT_FALSE(file_.offer("5\nnonsense").ok());
}

// A rank may have accepted a newer one since this object last looked.
TEST_F(RosterFileTest, NeverGoesBackwards) {
  accept(5, "mine");
  ASSERT_TRUE(file_.offer(roster(4, "theirs")).ok());
  EXPECT_EQ(membership::read_roster(path()).value().generation.id, "mine");
}

TEST_F(RosterFileTest, CanBeCheckedForWritability) {
  EXPECT_TRUE(membership::check_writable(path()).ok());
  EXPECT_TRUE(membership::check_writable(path()).ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path())) << "the check leaves nothing behind";
  EXPECT_FALSE(membership::check_writable(folder_.path() + "/missing/roster").ok());
}

TEST(RuntimeDirectory, IsPrivateAndIsRemoved) {
  std::string path;
  {
    const auto folder = RuntimeDirectory::create(process_environment());
    ASSERT_TRUE(folder.ok());
    path = folder->path();
    EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms::owner_all);
    std::ofstream(path + "/file") << "x";
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace lockstep::launch
