#include "launch/meeting/meeting_records.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

NodeState node_state() {
  NodeState state;
  state.record = {.id = "a1", .host = "gpu1", .pid = 5, .nproc = 2, .address = "10.0.0.1:80", .node_rank = 1};
  state.job = {.run_id = "x", .min_nodes = 1, .max_nodes = 4, .elastic = true, .max_restarts = 3};
  state.connection = 2;
  state.wants_round = true;
  RankFailure failure;
  failure.rank = 3;
  failure.signal = 11;
  failure.reason = "broken";
  state.failures.push_back({.round = 1, .node = "a1", .failure = failure});
  state.known_round = {.number = 1, .id = "r1", .master = "10.0.0.1:80", .nodes = {state.record}, .base = 0};
  state.established = state.known_round;
  return state;
}

JobState job_state() {
  JobState state;
  state.job = node_state().job;
  state.term = 3;
  state.official = true;
  state.coordinator = node_state().record;
  state.round = node_state().known_round;
  state.established = state.round;
  state.others = {{.generation = {.number = 2, .id = "r1b", .members = {}}, .may_hide_others = true}};
  state.others.front().generation.members = {
      {.id = "b", .host = "gpu2", .pid = 6, .started = 7, .store_address = "10.0.0.2:80", .attester = "10.0.0.2:81"}};
  state.ended = {"c"};
  state.ended_with["c"] = {.number = 2, .id = "r1"};
  state.counted = {{"a1", 2}, {"b", 0}};
  state.lost = {"b"};
  state.waiting = {state.coordinator};
  state.failures = node_state().failures;
  state.progress = "1 of 2";
  state.roster_number = 9;
  return state;
}

TEST(StoreMeetingRecords, SurviveARoundTrip) {
  const auto node = parse_node_state(format(node_state()));
  ASSERT_TRUE(node.ok()) << node.status().message();
  EXPECT_EQ(format(*node), format(node_state()));
  EXPECT_EQ(node->failures.front().failure.reason, "broken");
  EXPECT_EQ(node->record.node_rank, 1);
  const auto job = parse_job_state(format(job_state()));
  ASSERT_TRUE(job.ok()) << job.status().message();
  EXPECT_EQ(format(*job), format(job_state()));
  EXPECT_EQ(job->counted.at("a1"), 2U);
  EXPECT_EQ(job->others.front().generation, job_state().others.front().generation);
  EXPECT_EQ(job->ended_with, job_state().ended_with);
}

TEST(StoreMeetingRecords, EveryPrefixIsRejected) {
  const std::string node = format(node_state());
  for (std::size_t size = 0; size < node.size(); ++size) EXPECT_FALSE(parse_node_state(node.substr(0, size)).ok());
  const std::string job = format(job_state());
  for (std::size_t size = 0; size < job.size(); ++size) EXPECT_FALSE(parse_job_state(job.substr(0, size)).ok());
  EXPECT_FALSE(parse_job_state(node).ok());
}

TEST(StoreMeetingRecords, AnotherVersionIsNamed) {
  std::string bytes = format(node_state());
  bytes[4] = 9;
  EXPECT_EQ(parse_node_state(bytes).status().message(),
            "a launcher of protocol version 9, but this one has version 4; run the same version of Lockstep on all "
            "nodes");
}

TEST(StoreMeetingRecords, RostersAreNumberedByTheirFirstLine) {
  EXPECT_EQ(roster_number("12\nrest"), 12);
  EXPECT_EQ(roster_number("0"), 0);
  EXPECT_EQ(roster_number("x\n1"), -1);
  EXPECT_EQ(roster_number("-3\n"), -1);
  EXPECT_EQ(roster_number(""), -1);
}

}  // namespace
}  // namespace lockstep::launch
