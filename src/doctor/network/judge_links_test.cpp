#include "doctor/network/judge_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::doctor {
namespace {

using ::testing::HasSubstr;

const std::vector<HostPort> kHosts = {{"a", 1}, {"b", 1}, {"c", 1}};

LinkReport good_link(int from, int to) {
  return {.from = from,
          .to = to,
          .endpoint = Reach::answered,
          .ranks = Reach::answered,
          .ranks_address = "10.0.0.2:4000",
          .latency_seconds = 50e-6,
          .bytes_per_second = 1e9,
          .clock_offset_seconds = 1e-4,
          .clock_error_seconds = 2e-4};
}

std::map<int, HostReport> good_reports() {
  std::map<int, HostReport> reports;
  for (int from = 0; from < 3; ++from) {
    HostReport report{.index = from, .host = "host"};
    for (int to = 0; to < 3; ++to) {
      if (to != from) report.links.push_back(good_link(from, to));
    }
    reports[from] = report;
  }
  return reports;
}

TEST(JudgeLinks, IsGreenIfAllLinksAreGood) {
  const auto findings = judge_links(kHosts, good_reports());
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].level, Level::green);
}

TEST(JudgeLinks, NamesAHostThatDidNotComeOnceWithHowItResponded) {
  auto reports = good_reports();
  reports.erase(2);
  for (auto& [index, report] : reports) report.links[1].endpoint = Reach::unreachable;
  const auto findings = judge_links(kHosts, reports);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].check, "host c:1");
  EXPECT_EQ(findings[0].value, "did not come (unreachable)");
  EXPECT_EQ(findings[0].level, Level::red);
}

TEST(JudgeLinks, TellsAFirewallFromAProcessThatIsMissing) {
  auto reports = good_reports();
  reports[0].links[0].endpoint = Reach::refused;
  reports[0].links[0].ranks = Reach::refused;
  const auto findings = judge_links(kHosts, reports);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].check, "link a:1 to b:1");
  EXPECT_THAT(findings[0].advice, HasSubstr("so a firewall answers with RST"));
}

TEST(JudgeLinks, ALinkThatIsSlowerThanTheOthersIsYellow) {
  auto reports = good_reports();
  reports[1].links[1].bytes_per_second = 0.3e9;
  reports[2].links[0].latency_seconds = 5e-3;
  const auto findings = judge_links(kHosts, reports);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].check, "link b:1 to c:1");
  EXPECT_THAT(findings[0].value, HasSubstr("slow: 2.4 Gbit/s (the fastest link has 8 Gbit/s)"));
  EXPECT_THAT(findings[1].value, HasSubstr("latency 5 ms"));
}

TEST(JudgeLinks, AClockIsNamedOnceIfItsOffsetExceedsTheError) {
  auto reports = good_reports();
  reports[0].links[0].clock_offset_seconds = 2;
  reports[1].links[0].clock_offset_seconds = -2;
  auto findings = judge_links(kHosts, reports);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].check, "clock of b:1");
  reports[0].links[0].clock_error_seconds = 3;
  findings = judge_links(kHosts, reports);
  EXPECT_EQ(findings[0].level, Level::green) << "it may be the network";
}

TEST(HostReport, SurvivesTheWayThroughAStore) {
  HostReport report = good_reports()[1];
  report.findings = {yellow("BLAS", "the reference BLAS", "install another")};
  report.links[0].ranks = Reach::no_secret;
  report.links[0].latency_seconds = -1;
  const auto parsed = parse_host_report(to_json_text(report));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->index, 1);
  ASSERT_EQ(parsed->findings.size(), 1U);
  EXPECT_EQ(parsed->findings[0].level, Level::yellow);
  EXPECT_EQ(parsed->findings[0].advice, "install another");
  EXPECT_EQ(parsed->links[0].ranks, Reach::no_secret);
  EXPECT_LT(parsed->links[0].latency_seconds, 0);
  EXPECT_DOUBLE_EQ(parsed->links[1].bytes_per_second, 1e9);
}

TEST(HostReport, TextThatIsNotUtf8IsReplaced) {
  HostReport report = good_reports()[1];
  report.findings = {yellow("BLAS", "m\xfcll", "install another")};
  const auto parsed = parse_host_report(to_json_text(report));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->findings[0].value, "m\xEF\xBF\xBDll");
}

TEST(HostReport, DamagedOnesAreRefused) {
  for (const char* text : {"", "{}", "[1]", "{\"index\": \"one\", \"host\": 1}",
                           "{\"index\": 1, \"host\": \"a\", \"checks\": [{\"level_number\": 9}], \"links\": []}"}) {
    EXPECT_EQ(parse_host_report(text).status().code(), StatusCode::protocol_error) << text;
  }
  HostReport report = good_reports()[1];
  report.links[0].from = 999;
  EXPECT_FALSE(parse_host_report(to_json_text(report)).ok()) << "a link of another host";
}

TEST(LinkTable, HasARowAndAColumnForEachHost) {
  auto reports = good_reports();
  reports.erase(2);
  reports[0].links[1].endpoint = Reach::dropped;
  reports[0].links[1].ranks = Reach::unknown;
  const std::string table = link_table(kHosts, reports);
  EXPECT_THAT(table, HasSubstr("50 us, 8 Gbit/s"));
  EXPECT_THAT(table, HasSubstr("dropped"));
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 4);
}

}  // namespace
}  // namespace lockstep::doctor
