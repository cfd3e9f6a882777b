#include "collectives/split_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string name(int rank) { return "rank " + std::to_string(rank); }

SplitTable table_of(const std::vector<std::vector<std::int64_t>>& rows) {
  SplitTable table(static_cast<int>(rows.size()));
  auto place = table.rows().begin();
  for (const auto& row : rows) place = std::copy(row.begin(), row.end(), place);
  return table;
}

TEST(SplitTable, AcceptsWhatBothSidesAgreeOn) {
  const SplitTable table =
      table_of({SplitTable::row(std::vector<std::int64_t>{1, 2}, std::vector<std::int64_t>{1, 0}),
                SplitTable::row(std::vector<std::int64_t>{0, 3}, std::vector<std::int64_t>{2, 3})});
  EXPECT_TRUE(table.check("rows", name).ok());
  EXPECT_FALSE(table.all_equal());
  EXPECT_TRUE(table_of({{4, 4, 4, 4}, {4, 4, 4, 4}}).all_equal());
}

TEST(SplitTable, NamesTheRanksThatDisagree) {
  const Status status = table_of({{1, 2, 1, 0}, {0, 3, 5, 3}}).check("rows", name);
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("rank 0 sends 2 rows to rank 1, which expects 5"), HasSubstr("input splits")));
}

}  // namespace
}  // namespace lockstep
