#include "bench/driver/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/driver/measure.h"

namespace lockstep::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Samples two_rounds() {
  return {.seconds = {1e-3, 1e-3, 2e-3, 2e-3},
          .round_medians = {1e-3, 2e-3},
          .wrong = 0,
          .cpu_seconds = 8e-3,
          .wire_bytes = 6'000'000,
          .operations = 6};
}

Row row_of(const std::string& engine, const BenchOptions& options = {}) {
  const Shape shape = shape_of(Collective::all_reduce, DType::f32, 2, 1'000'000);
  return make_row(options, 2, shape, engine, "registered", two_rounds(), {0.5e-3, 1.5e-3},
                  {{"gloo", {10e-3, 30e-3}}, {"mpich", {3e-3, 6e-3}}});
}

TEST(MakeRow, ComparesLockstepWithPeersAndLimitRoundByRound) {
  const Row row = row_of("lockstep");
  EXPECT_EQ(row.bytes, 1'000'000u);
  EXPECT_EQ(row.count, 250'000u);
  EXPECT_DOUBLE_EQ(row.p50_us, 1000);
  EXPECT_DOUBLE_EQ(row.p99_us, 2000);
  EXPECT_DOUBLE_EQ(row.algbw, 1.0);
  EXPECT_DOUBLE_EQ(row.busbw, 1.0);
  EXPECT_DOUBLE_EQ(*row.cpu_seconds_per_gb, 2.0);
  EXPECT_DOUBLE_EQ(row.limit->median, 0.625);
  EXPECT_DOUBLE_EQ(row.ratio.at("gloo").median, 12.5);
  EXPECT_DOUBLE_EQ(row.ratio.at("mpich").median, 3.0);
  EXPECT_FALSE(row.wire_bytes);
}

TEST(MakeRow, ComparesPeersWithTheLimitOnly) {
  const Row row = row_of("gloo");
  EXPECT_TRUE(row.limit);
  EXPECT_TRUE(row.ratio.empty());
}

TEST(MakeRow, CountsBytesOnTheWireBetweenHosts) {
  const Row row = row_of("lockstep", {.hosts = {2, 1}});
  EXPECT_DOUBLE_EQ(*row.wire_bytes, 1'000'000);
  EXPECT_DOUBLE_EQ(*row.wire_fraction, 1.0);
}

TEST(Table, HasTheColumnsOfNcclTestsAndOnePerPeer) {
  const std::string header = table_header({"gloo"}, false);
  for (const char* title :
       {"size", "count", "type", "redop", "time", "algbw", "busbw", "#wrong", "speedup vs gloo", "limit"})
    EXPECT_THAT(header, HasSubstr(title));
  EXPECT_THAT(header, Not(HasSubstr("wire")));
  EXPECT_THAT(table_header({}, true), HasSubstr("wire"));
}

TEST(Table, LinesAreAsWideAsTheirTitles) {
  const std::vector<std::string> peers = {"gloo", "openmpi"};
  const std::string header = table_header(peers, true);
  const std::string line = table_line(row_of("lockstep"), peers, true);
  EXPECT_EQ(line.find('\n'), header.find('\n'));
  EXPECT_THAT(line, HasSubstr("12.5 (10.0-15.0)"));
}

TEST(Json, HasOneObjectPerRowWithTheDocumentedFields) {
  Row barrier{.collective = Collective::barrier, .engine = "gloo", .memory = "private", .p50_us = 5};
  const auto json = nlohmann::json::parse(to_json({row_of("lockstep"), barrier}));
  ASSERT_EQ(json.size(), 2u);
  for (const auto& row : json) {
    for (const char* field : {"bytes", "engine", "memory", "p50_us", "p99_us", "algbw_GBps", "busbw_GBps", "wrong",
                              "limit_fraction", "ratio"})
      EXPECT_TRUE(row.contains(field)) << field;
  }
  EXPECT_EQ(json[0]["engine"], "lockstep");
  EXPECT_EQ(json[0]["wrong"], 0);
  EXPECT_DOUBLE_EQ(json[0]["limit_fraction"], 0.625);
  EXPECT_DOUBLE_EQ(json[0]["ratio"]["gloo"], 12.5);
  EXPECT_DOUBLE_EQ(json[0]["ratio_spread"]["gloo"]["high"], 15.0);
  EXPECT_TRUE(json[1]["limit_fraction"].is_null());
  EXPECT_TRUE(json[1]["ratio"].is_object());
  EXPECT_TRUE(json[1]["cpu_s_per_GB"].is_null());
}

}  // namespace
}  // namespace lockstep::bench
