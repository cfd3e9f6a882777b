#include "record/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lockstep/collectives/operation.h"

namespace lockstep::record {
namespace {

using nlohmann::json;

constexpr std::int64_t kMs = 1'000'000;

RecordedOperation all_reduce(std::uint64_t sequence, std::int64_t started, std::int64_t finished) {
  return {.sequence = sequence,
          .issued_ns = started - kMs,
          .started_ns = started,
          .finished_ns = finished,
          .bytes = 4096,
          .kind = static_cast<std::uint8_t>(OperationKind::all_reduce),
          .algorithm = 2,
          .outcome = finished == 0 ? Outcome::running : Outcome::done};
}

// Two ranks: rank 1 arrives 30 ms after rank 0 at the first operation; rank 0 is killed in the second.
std::vector<TracedRank> two_ranks() {
  std::vector<TracedRank> ranks(2);
  for (int rank = 0; rank < 2; ++rank) {
    auto& record = ranks[static_cast<std::size_t>(rank)].record;
    record.pid = 100 + rank;
    record.rank = rank;
    record.world_size = 2;
    record.host = "node\"7\"";
    record.groups.push_back({.id = 77, .name = "world", .rank = rank, .size = 2});
    const std::int64_t late = rank * 30 * kMs;
    record.groups[0].operations.push_back(all_reduce(1, 1000 * kMs + late, 1040 * kMs));
    record.spans.push_back(
        {.kind = PhaseKind::forward, .begin_ns = 900 * kMs, .end_ns = 1000 * kMs + late, .index = 1, .thread = 1});
    record.spans.push_back({.kind = PhaseKind::bucket, .begin_ns = 1000 * kMs, .end_ns = 1040 * kMs, .bytes = 4096});
    record.spans.push_back({.kind = PhaseKind::generation, .begin_ns = 890 * kMs, .end_ns = 890 * kMs, .index = 2});
  }
  ranks[0].record.groups[0].operations.push_back(all_reduce(2, 1100 * kMs, 0));
  ranks[0].end = "signal 9 (SIGKILL)";
  ranks[0].end_ns = 1200 * kMs;
  ranks[1].record.failure = "rank 0 was lost";
  ranks[1].record.failure_ns = 1201 * kMs;
  return ranks;
}

std::vector<json> events(const json& trace, const std::string& kind, const std::string& name = {}) {
  std::vector<json> found;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == kind && (name.empty() || event["name"] == name)) found.push_back(event);
  }
  return found;
}

TEST(Trace, HasPhasesBucketsAndCollectivesOfEachRank) {
  const json trace = json::parse(trace_json(two_ranks(), {.now_ns = 1300 * kMs}));
  const auto operations = events(trace, "X", "all_reduce");
  ASSERT_EQ(operations.size(), 3U);
  EXPECT_EQ(operations[0]["pid"], 0);
  EXPECT_DOUBLE_EQ(operations[0]["ts"], 110'000.0) << "microseconds since the first event";
  EXPECT_DOUBLE_EQ(operations[0]["dur"], 40'000.0);
  EXPECT_EQ(operations[0]["args"]["sequence"], 1);
  EXPECT_EQ(operations[0]["args"]["bytes"], 4096);
  EXPECT_EQ(operations[0]["args"]["algorithm"], "shared");
  EXPECT_EQ(events(trace, "X", "forward").size(), 2U);
  EXPECT_EQ(events(trace, "b", "bucket 0").size(), 2U);
  EXPECT_EQ(events(trace, "e", "bucket 0").size(), 2U);
  EXPECT_EQ(events(trace, "i", "generation 2").size(), 2U);
  EXPECT_EQ(events(trace, "M", "process_name")[0]["args"]["name"], "rank 0 (node\"7\", pid 100)");
}

TEST(Trace, AnArrowLeadsFromTheLastRankToThoseThatWaited) {
  const json trace = json::parse(trace_json(two_ranks(), {.now_ns = 1300 * kMs}));
  const auto from = events(trace, "s");
  const auto to = events(trace, "f");
  ASSERT_EQ(from.size(), 1U);
  ASSERT_EQ(to.size(), 1U);
  EXPECT_EQ(from[0]["id"], to[0]["id"]);
  EXPECT_EQ(from[0]["pid"], 1) << "rank 1 arrived last";
  EXPECT_DOUBLE_EQ(from[0]["ts"], 140'000.0);
  EXPECT_EQ(to[0]["pid"], 0);
  EXPECT_DOUBLE_EQ(to[0]["ts"], 150'000.0);
}

TEST(Trace, ShowsWhatAKilledRankWasDoingAndWhoNoticed) {
  const json trace = json::parse(trace_json(two_ranks(), {.now_ns = 1300 * kMs}));
  const json second = events(trace, "X", "all_reduce")[1];
  EXPECT_EQ(second["args"]["outcome"], "running");
  EXPECT_DOUBLE_EQ(second["dur"], 100'000.0) << "until its end";
  EXPECT_EQ(events(trace, "i", "end")[0]["args"]["text"], "signal 9 (SIGKILL)");
  EXPECT_EQ(events(trace, "i", "failure")[0]["args"]["text"], "rank 0 was lost");
}

TEST(Trace, LeavesOutWhatEndedBeforeTheStart) {
  const json trace = json::parse(trace_json(two_ranks(), {.now_ns = 1300 * kMs, .from_ns = 1050 * kMs}));
  EXPECT_EQ(events(trace, "X", "all_reduce").size(), 1U);
  EXPECT_TRUE(events(trace, "X", "forward").empty());
}

TEST(Trace, WithoutRanksIsValidToo) {
  const json trace = json::parse(trace_json({}, {}));
  EXPECT_TRUE(trace["traceEvents"].empty());
}

}  // namespace
}  // namespace lockstep::record
