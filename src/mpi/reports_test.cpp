#include "mpi/reports.h"

#include <gmock/gmock.h>

namespace lockstep::mpi {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Report at(int rank, std::uint64_t issued, std::uint64_t front, const std::string& text = "barrier") {
  return {.issued = issued, .front = front, .who = "rank " + std::to_string(rank) + " (host h, pid 7)", .text = text};
}

Status checked(std::map<int, Report> others, bool expired) {
  const ChannelProgress mine{.issued = 5, .front = 5, .text = "barrier"};
  return check_reports("group 'world'", 0, 3, mine, others, expired, std::chrono::milliseconds(2000));
}

TEST(MpiReports, AreUnchangedByTheStore) {
  const Report report{.issued = 12,
                      .front = 11,
                      .left = true,
                      .who = "rank 1 (host h, pid 3)",
                      .text = "all_reduce(sum) of 3 f32",
                      .done = 10,
                      .done_text = "barrier"};
  EXPECT_EQ(*parse_report(format(report)), report);
  for (const char* text : {"", "1", "1\n2\n3\n4\n5\n6\n7", "1\n2\n0\n1\nwho\ntext", "x\n2\n0\n1\nwho\ntext\ndone",
                           "1\n2\n0\nx\nwho\ntext\ndone", "1\n2\n0\n1\nwho\ntext\ndone\nmore"}) {
    EXPECT_EQ(parse_report(text).status().code(), StatusCode::protocol_error) << text;
  }
}

TEST(MpiReports, RanksThatHaveNotIssuedItAreMissingAtTheDeadline) {
  const Status status = checked({{1, at(1, 4, 0)}, {2, at(2, 7, 5)}}, true);
  EXPECT_EQ(status.code(), StatusCode::timed_out);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("operation #5, barrier"), HasSubstr("2000ms"),
                                      HasSubstr("missing: rank 1 (host h, pid 7), whose last operation was #4"),
                                      Not(HasSubstr("rank 2"))));
}

TEST(MpiReports, ARankWithoutAReportIsMissing) {
  EXPECT_THAT(checked({{1, at(1, 5, 5)}}, true).message(), HasSubstr("missing: rank 2"));
}

TEST(MpiReports, BeforeTheDeadlineNoRankIsReportedAsLate) { EXPECT_TRUE(checked({{1, at(1, 4, 0)}}, false).ok()); }

TEST(MpiReports, IfAllRanksHaveIssuedItMpiIsReported) {
  EXPECT_THAT(checked({{1, at(1, 5, 5)}, {2, at(2, 5, 0)}}, true).message(), HasSubstr("all ranks have called it"));
}

TEST(MpiReports, RanksThatLeftAreReported) {
  Report left = at(1, 4, 0);
  left.left = true;
  const Status status = checked({{1, left}, {2, at(2, 5, 5)}}, false);
  EXPECT_EQ(status.code(), StatusCode::peer_lost);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 (host h, pid 7) has left the group after operation #4"));
}

TEST(MpiReports, DifferentOperationsAreNamedOnBothSides) {
  const Status status = checked({{1, at(1, 5, 5, "all_reduce(sum) of 3 f32")}, {2, at(2, 4, 0)}}, false);
  EXPECT_EQ(status.code(), StatusCode::mismatch);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("operation #5, barrier on rank 0"), HasSubstr("rank 1"),
                                      HasSubstr("all_reduce(sum) of 3 f32")));
}

TEST(MpiReports, AnotherOperationThatMpiCompletedIsNamedToo) {
  Report done = at(1, 5, 0, "");
  done.done = 5;
  done.done_text = "broadcast of 3 f32 from rank 1";
  const Status status = checked({{1, done}, {2, at(2, 5, 5)}}, false);
  EXPECT_EQ(status.code(), StatusCode::mismatch);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 (host h, pid 7) called broadcast of 3 f32 from rank 1"));
  done.done_text = "barrier";
  EXPECT_TRUE(checked({{1, done}, {2, at(2, 5, 5)}}, false).ok());
}

}  // namespace
}  // namespace lockstep::mpi
