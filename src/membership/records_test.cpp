#include "membership/records.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "membership/roster.h"

namespace lockstep::membership {
namespace {

const Generation kGeneration = {
    .number = 7,
    .id = "abc",
    .job = "first",
    .members = {{.id = "x", .host = "node \"1\"", .pid = 4711, .store_address = "[::1]:29400", .site = "s"},
                {.id = "y"}},
    .outdated = {0}};

TEST(Records, SurviveARoundTrip) {
  const Registration registration{
      .member = kGeneration.members[0], .accepted = kGeneration, .established = {}, .step = 12, .void_ids = {"v"}};
  const Answer answer{.kind = Answer::Kind::join,
                      .generation = kGeneration,
                      .source = 1,
                      .transfer = true,
                      .reason = "r",
                      .void_ids = {"v", "w"}};
  EXPECT_EQ(parse_generation(format(kGeneration)).value(), kGeneration);
  EXPECT_EQ(parse_registration(format(registration)).value(), registration);
  EXPECT_EQ(parse_answer(format(answer)).value(), answer);
}

TEST(Records, TextThatIsNotUtf8IsReplaced) {
  Answer answer{.generation = kGeneration, .reason = "it said \xff\xfe"};
  answer.generation.members[1].host = "m\xfcller";  // Latin-1
  const Answer read = parse_answer(format(answer)).value();
  EXPECT_EQ(read.reason, "it said \xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(read.generation.members[1].host, "m\xEF\xBF\xBDller");
  EXPECT_EQ(read.generation.members[0], kGeneration.members[0]);
}

TEST(Records, AreRejectedIfTruncatedAnywhere) {
  const std::string whole = format(Answer{.kind = Answer::Kind::join, .generation = kGeneration});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(parse_answer(whole.substr(0, size)).status().code(), StatusCode::protocol_error) << size;
  }
}

TEST(Records, ASourceThatIsNotAMemberIsRejected) {
  const Answer answer{.kind = Answer::Kind::join, .generation = kGeneration, .source = 2};
  EXPECT_FALSE(parse_answer(format(answer)).ok());
}

TEST(Records, AnOutdatedStateOfARankThatDoesNotExistIsRejected) {
  for (const int rank : {-1, 2}) {
    Generation generation = kGeneration;
    generation.outdated = {rank};
    EXPECT_FALSE(parse_generation(format(generation)).ok()) << rank;
  }
}

TEST(Records, AGenerationWithoutAListOfOutdatedStatesHasNone) {
  Generation generation = kGeneration;
  generation.outdated = {};
  std::string text = format(generation);
  const std::string list = "\"outdated\":[],";
  ASSERT_NE(text.find(list), std::string::npos);
  text.erase(text.find(list), list.size());
  EXPECT_EQ(parse_generation(text).value(), generation);
}

class RosterFile : public ::testing::Test {
 protected:
  RosterFile() {
    char name[] = "/tmp/lockstep_roster_XXXXXX";
    folder_ = ::mkdtemp(name);
    path_ = folder_ + "/roster";
  }
  ~RosterFile() override { std::filesystem::remove_all(folder_); }
  std::string folder_, path_;
};

TEST_F(RosterFile, IsEmptyUntilWritten) {
  EXPECT_EQ(read_roster(path_).value().generation.number, 0);
  ASSERT_TRUE(offer_roster(path_, {.generation = kGeneration}).ok());
  EXPECT_EQ(read_roster(path_).value().generation, kGeneration);
  std::ifstream file(path_ + ".7");
  std::string first_line;
  std::getline(file, first_line);
  EXPECT_EQ(first_line, "7");
}

TEST_F(RosterFile, IsNeverReplacedByAnOlderOne) {
  ASSERT_TRUE(offer_roster(path_, {.generation = kGeneration, .finished = true}).ok());
  Generation older = kGeneration;
  older.number = 6;
  ASSERT_TRUE(offer_roster(path_, {.generation = older}).ok());
  ASSERT_TRUE(offer_roster(path_, {.generation = kGeneration}).ok());
  EXPECT_EQ(read_roster(path_).value().generation.number, 7);
  EXPECT_TRUE(read_roster(path_).value().finished);
}

TEST_F(RosterFile, ManyWritersLeaveTheNewest) {
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 4; ++writer) {
    writers.emplace_back([this, writer] {
      for (int number = writer; number < 200; number += 4) {
        Generation generation = kGeneration;
        generation.number = number;
        generation.id = std::to_string(number);
        EXPECT_TRUE(offer_roster(path_, {.generation = generation}).ok());
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(read_roster(path_).value().generation.number, 199);
}

TEST_F(RosterFile, HoldsOneGenerationOfEachNumber) {
  ASSERT_TRUE(offer_roster(path_, {.generation = kGeneration}).ok());
  Generation other = kGeneration;
  other.id = "another";
  const Roster held = offer_roster(path_, {.generation = other}).value();
  EXPECT_EQ(held.generation, kGeneration) << "the caller sees what forbids its own";
  EXPECT_EQ(read_roster(path_).value().generation, kGeneration);
  ++other.number;
  EXPECT_EQ(offer_roster(path_, {.generation = other}).value().generation, other);
}

TEST_F(RosterFile, NothingFollowsAFinishedJob) {
  ASSERT_TRUE(offer_roster(path_, {.generation = kGeneration, .finished = true}).ok());
  Generation next = kGeneration;
  ++next.number;
  next.id = "next";
  EXPECT_TRUE(offer_roster(path_, {.generation = next}).value().finished);
}

TEST_F(RosterFile, GarbageIsAnErrorAndStays) {
  std::ofstream(path_ + ".3") << "what is this\n";
  EXPECT_EQ(read_roster(path_).status().code(), StatusCode::protocol_error);
  EXPECT_EQ(offer_roster(path_, {.generation = kGeneration}).status().code(), StatusCode::protocol_error);
}

TEST_F(RosterFile, OldGenerationsAreRemoved) {
  for (int number = 1; number <= 100; ++number) {
    Generation generation = kGeneration;
    generation.number = number;
    generation.id = std::to_string(number);
    ASSERT_TRUE(offer_roster(path_, {.generation = generation}).ok());
  }
  const std::filesystem::directory_iterator files(folder_);
  EXPECT_LT(std::distance(begin(files), end(files)), 20);
}

// One that was stopped between looking and writing.
TEST_F(RosterFile, AWriterThatIsTooLateSeesWhatForbidsIt) {
  Generation newer = kGeneration;
  newer.number = 100;
  newer.id = "newer";
  ASSERT_TRUE(offer_roster(path_, {.generation = newer}).ok());
  std::ofstream(path_ + ".7") << format(Roster{.generation = kGeneration});
  EXPECT_EQ(read_roster(path_).value().generation, newer);
  EXPECT_EQ(offer_roster(path_, {.generation = kGeneration}).value().generation, newer);
}

TEST_F(RosterFile, AMissingFolderIsReported) {
  const Status status = offer_roster(folder_ + "/none/roster", {.generation = kGeneration}).status();
  EXPECT_EQ(status.code(), StatusCode::unavailable);
  EXPECT_NE(status.message().find("/none/"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::membership
