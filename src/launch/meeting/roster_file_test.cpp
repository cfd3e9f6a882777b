#include "launch/meeting/roster_file.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "launch/process/runtime_directory.h"
#include "membership/roster.h"

namespace lockstep::launch {
namespace {

class RosterFileTest : public ::testing::Test {
 protected:
  // As ranks do.
  void replace(const std::string& text) const {
    std::ofstream(path() + ".new") << text;
    std::rename((path() + ".new").c_str(), path().c_str());
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
  replace("1\na");
  EXPECT_EQ(file_.take_newer(), "1\na");
  EXPECT_FALSE(file_.take_newer());
  replace("2\nb");
  EXPECT_EQ(file_.take_newer(), "2\nb");
  replace("1\nold");
  EXPECT_FALSE(file_.take_newer());
  replace("nonsense");
  EXPECT_FALSE(file_.take_newer());
}

TEST_F(RosterFileTest, AcceptsOnlyNewerRostersFromOtherNodes) {
  replace(roster(3, "mine"));
  ASSERT_TRUE(file_.take_newer());
  ASSERT_TRUE(file_.offer(roster(3, "theirs")).ok());
  EXPECT_FALSE(file_.take_newer());
  ASSERT_TRUE(file_.offer(roster(4, "theirs")).ok());
  EXPECT_FALSE(file_.take_newer()) << "a roster from another node is not returned again";
  std::ifstream content(path());
  std::string number;
  content >> number;
  EXPECT_EQ(number, "4");
}

// A rank may have written a newer one since this object last looked.
TEST_F(RosterFileTest, NeverGoesBackwards) {
  replace(roster(5, "mine"));
  ASSERT_TRUE(file_.offer(roster(4, "theirs")).ok());
  EXPECT_EQ(membership::read_roster(path()).value().generation.id, "mine");
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
