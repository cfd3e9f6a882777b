#include "cli/top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kNow = 1000 * kSecond;

record::RankRecord rank_in(int rank, std::uint64_t sequence, bool waits, double seconds) {
  const auto since = kNow - static_cast<std::int64_t>(seconds * 1e9);
  record::RankRecord record{.pid = 100 + rank, .rank = rank, .world_size = 3, .host = "node7"};
  record::RecordedGroup group{.id = 7, .name = "world", .rank = rank, .size = 3};
  group.operations.push_back({.sequence = sequence,
                              .started_ns = since,
                              .finished_ns = waits ? 0 : since,
                              .outcome = waits ? record::Outcome::running : record::Outcome::done});
  record.groups.push_back(group);
  record.phase = static_cast<int>(waits ? PhaseKind::exposed_wait : PhaseKind::data);
  record.phase_since_ns = since;
  for (std::uint64_t step = 1; step <= 5; ++step) record.steps.push_back({.number = step, .model = 1, .total = 0.1F});
  return record;
}

JobPicture hanging_job() {
  JobPicture picture{.command = "lockstep run ./train", .launcher = 99, .now_ns = kNow};
  picture.ranks = {rank_in(0, 17, true, 12), rank_in(1, 17, true, 12.5), rank_in(2, 16, false, 13)};
  for (const auto& rank : picture.ranks)
    picture.usage[rank.pid] = {.cores = 0.5, .resident_bytes = std::uint64_t{1} << 30};
  return picture;
}

std::string text_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(TopView, TheStateIsOneSentence) {
  EXPECT_EQ(state_sentence({}), "starting: no rank uses Lockstep yet");
  JobPicture picture = hanging_job();
  EXPECT_THAT(state_sentence(picture), HasSubstr("waiting for 12 s: "));
  EXPECT_THAT(state_sentence(picture), HasSubstr("#17 of 'world' waits for rank 2 (step 5, 10 steps/s)"));
  picture.ranks[2] = rank_in(2, 17, true, 0.2);
  picture.ranks[0] = rank_in(0, 17, true, 0.2);
  picture.ranks[1] = rank_in(1, 17, true, 0.2);
  EXPECT_EQ(state_sentence(picture), "training: step 5, 10 steps/s");
  picture.ranks[1].failure = "rank 2 was lost";
  EXPECT_EQ(state_sentence(picture), "failed: rank 1: rank 2 was lost");
}

TEST(TopView, EveryRankHasALineWithPhaseOperationAndUsage) {
  const std::string text = text_of(top_lines(hanging_job(), {.columns = 200}));
  EXPECT_THAT(text, HasSubstr("lockstep run ./train (pid 99), 3 ranks"));
  EXPECT_THAT(text, HasSubstr("exposed wait"));
  EXPECT_THAT(text, HasSubstr("data loading"));
  EXPECT_THAT(text, HasSubstr("#17"));
  EXPECT_THAT(text, HasSubstr("1.00 GiB"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b"))) << "no colours unless they are wanted";
}

TEST(TopView, NoLineIsWiderThanTheScreenAndARankThatIsWaitedForComesFirst) {
  const auto lines = top_lines(hanging_job(), {.columns = 40, .rows = 7});
  EXPECT_LE(lines.size(), 7U);
  for (const std::string& line : lines) EXPECT_LE(line.size(), 40U) << line;
  const std::string text = text_of(lines);
  EXPECT_THAT(text, HasSubstr("   2  node7"));
  EXPECT_THAT(text, HasSubstr("more ranks"));
}

TEST(TopView, AProcessThatHasEndedIsMarked) {
  JobPicture picture = hanging_job();
  picture.usage.erase(102);
  EXPECT_THAT(text_of(top_lines(picture, {.columns = 200})), HasSubstr("ended"));
}

TEST(TopView, SurvivesAScreenWithoutRoom) {
  for (const std::size_t size : {1U, 2U, 5U}) {
    for (const std::string& line : top_lines(hanging_job(), {.columns = size, .rows = size}))
      EXPECT_LE(line.size(), size);
  }
}

}  // namespace
}  // namespace lockstep::cli
