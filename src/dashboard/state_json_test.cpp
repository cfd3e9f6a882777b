#include "dashboard/state_json.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

namespace lockstep::dashboard {
namespace {

using nlohmann::json;

JobState training_job() {
  JobState state;
  state.facts = {
      .command = "./train", .run_id = "r1", .host = "node7", .launcher_pid = 4711, .ranks = 2, .started = 1000};
  state.tick = 7;
  state.now = 1010.5;
  for (int rank = 0; rank < 2; ++rank) {
    RankState one{
        .name = "rank " + std::to_string(rank), .rank = rank, .local_rank = rank, .host = "node7", .pid = 50 + rank};
    one.condition = RankCondition::running;
    one.step = 40;
    one.split = {.steps = 10, .total = 0.1, .exposed = 0.02, .buckets = {0.01, 0.0123456}};
    one.split.own[static_cast<std::size_t>(PhaseKind::forward)] = 0.03;
    state.ranks.push_back(one);
  }
  state.steps_per_second = 10;
  return state;
}

TEST(StateJson, HasEveryRankWithItsSplitInMilliseconds) {
  const json state = json::parse(state_json(training_job(), 0));
  ASSERT_EQ(state["ranks"].size(), 2U);
  const json& rank = state["ranks"][1];
  EXPECT_EQ(rank["rank"], 1);
  EXPECT_EQ(rank["condition"], "running");
  EXPECT_EQ(rank["step"], 40);
  EXPECT_DOUBLE_EQ(rank["split"]["own"][1].get<double>(), 30);
  EXPECT_DOUBLE_EQ(rank["split"]["exposed"].get<double>(), 20);
  EXPECT_DOUBLE_EQ(rank["split"]["buckets"][1].get<double>(), 12.35) << "four digits are enough";
  EXPECT_TRUE(rank["usage"].is_null());
  EXPECT_EQ(state["phases"][1], "forward");
  EXPECT_TRUE(state["straggler"].is_null());
  EXPECT_EQ(state["sentence"], "Training: step 40, 10 steps/s");
  EXPECT_EQ(state["level"], "good");
  EXPECT_EQ(state["job"]["over"], false);
}

TEST(StateJson, GivesAViewerOnlyWhatItHasNotSeen) {
  JobState state = training_job();
  state.curves.emplace_back("loss", "step");
  state.curves.back().add({.tick = 3, .x = 1, .y = 0.5});
  state.curves.back().add({.tick = 6, .x = 2, .y = 0.25});
  state.events = {{.tick = 3, .time = 1003, .text = "early"}, {.tick = 6, .time = 1006, .text = "late"}};
  const json all = json::parse(state_json(state, 0));
  EXPECT_EQ(all["events"].size(), 2U);
  EXPECT_EQ(all["curves"][0]["points"], json::parse("[[1.0,0.5],[2.0,0.25]]"));
  EXPECT_EQ(all["curves"][0]["reset"], true);
  const json later = json::parse(state_json(state, 3));
  EXPECT_EQ(later["since"], 3);
  ASSERT_EQ(later["events"].size(), 1U);
  EXPECT_EQ(later["events"][0]["text"], "late");
  EXPECT_EQ(later["curves"][0]["points"], json::parse("[[2.0,0.25]]"));
  EXPECT_EQ(later["curves"][0]["reset"], false);
}

TEST(StateJson, GivesEachCurveAnotherName) {
  JobState state = training_job();
  const std::string speed(kSpeedCurve);
  state.curves = {Curve(speed, "step"), Curve(speed, "time"), Curve(speed + " (metric)", "step"), Curve("a", "step")};
  const json curves = json::parse(state_json(state, 0))["curves"];
  std::set<std::string> names;
  for (const json& curve : curves) names.insert(curve["name"].get<std::string>());
  EXPECT_EQ(names.size(), 4U);
  EXPECT_EQ(curves[1]["name"], speed);
  EXPECT_EQ(curves[3]["name"], "a");
}

TEST(StateJson, EncodesTextThatIsNotUtf8AndNumbersThatAreNotFinite) {
  JobState state = training_job();
  state.ranks[0].failure = "\xff\xfe </script> \n";
  state.curves.emplace_back("loss", "step");
  state.curves.back().add({.tick = 1, .x = 1, .y = std::numeric_limits<double>::quiet_NaN()});
  state.curves.back().add({.tick = 1, .x = 2, .y = std::numeric_limits<double>::infinity()});
  state.curves.back().add({.tick = 1, .x = 3, .y = 5e-324});
  const std::string text = state_json(state, 0);
  EXPECT_EQ(text.find('\n'), std::string::npos) << "an event is one line";
  const json decoded = json::parse(text);
  EXPECT_TRUE(decoded["curves"][0]["points"][0][1].is_null());
  EXPECT_TRUE(decoded["curves"][0]["points"][1][1].is_null());
  EXPECT_TRUE(decoded["curves"][0]["points"][2][1].is_number());
}

TEST(Summary, NamesTheStraggler) {
  JobState state = training_job();
  state.stragglers.steps = 48;
  EXPECT_EQ(summarise(state).sentence, "Training: step 40, 10 steps/s; no rank is consistently late");
  state.stragglers.straggler = Straggler{.rank = 1, .cost_seconds = 0.05, .speedup = 2, .phase = PhaseKind::data};
  const Summary summary = summarise(state);
  EXPECT_EQ(summary.level, Summary::Level::attention);
  EXPECT_EQ(
      summary.sentence,
      "Training: step 40, 10 steps/s; rank 1 holds it up (data loading): without it, the job would be 2 times as fast");
}

TEST(Summary, StatesForWhichRankAStalledJobWaits) {
  JobState state = training_job();
  state.ranks[0].operation = "all_reduce #5 of 'world'";
  state.ranks[0].operation_age = 9;
  state.waiting = {"all_reduce #5 of 'world' waits for rank 1"};
  EXPECT_EQ(summarise(state).level, Summary::Level::good) << "not yet";
  state.ranks[0].operation_age = 33;
  EXPECT_EQ(summarise(state).sentence,
            "Stalled for 33 s at step 40, 10 steps/s: all_reduce #5 of 'world' waits for rank 1");
  EXPECT_EQ(summarise(state).level, Summary::Level::bad);
  for (auto& rank : state.ranks) rank.split.total = 60;
  EXPECT_EQ(summarise(state).level, Summary::Level::good) << "its steps take that long";
}

TEST(Summary, ReportsARecentFailureAndTheEnd) {
  JobState state = training_job();
  state.ranks[1].condition = RankCondition::failed;
  state.events.push_back({.time = 1009, .kind = EventKind::failure, .text = "rank 1 was killed\nby a signal"});
  EXPECT_EQ(summarise(state).sentence, "1 of 2 ranks run; rank 1 was killed");
  EXPECT_EQ(summarise(state).level, Summary::Level::bad);
  state.now += 60;
  EXPECT_NE(summarise(state).sentence, "1 of 2 ranks run; rank 1 was killed");
  state.conclusion = "All ranks have finished successfully";
  state.succeeded = true;
  EXPECT_EQ(summarise(state).level, Summary::Level::over);
  state.succeeded = false;
  EXPECT_EQ(summarise(state).level, Summary::Level::bad);
}

TEST(Summary, CountsRanksThatStart) {
  JobState state = training_job();
  state.ranks[1].condition = RankCondition::starting;
  EXPECT_EQ(summarise(state).sentence, "1 of 2 ranks have started");
  state.ranks[0].condition = RankCondition::starting;
  EXPECT_EQ(summarise(state).sentence, "2 ranks are starting");
  state.ranks.clear();
  EXPECT_EQ(summarise(state).sentence, "Waiting for the other nodes");
}

}  // namespace
}  // namespace lockstep::dashboard
