#include "python/shared_log.h"

#include <gtest/gtest.h>

namespace lockstep::python {
namespace {

std::vector<Change> every_kind() {
  return {{},
          {.kind = ChangeKind::set, .key = "a", .value = std::string("x\0y", 3), .nonce = "1"},
          {.kind = ChangeKind::add, .key = "count", .amount = -7, .nonce = "2"},
          {.kind = ChangeKind::compare_set, .key = "a", .value = "new", .expected = "", .nonce = "3"},
          {.kind = ChangeKind::compare_set, .key = "b", .value = "new", .nonce = "4"},
          {.kind = ChangeKind::remove, .key = "a", .nonce = "5"},
          {.kind = ChangeKind::append, .key = "list", .value = "item", .nonce = "6"}};
}

TEST(SharedLog, EveryChangeIsParsedAsItWasFormatted) {
  for (const Change& change : every_kind()) {
    const auto parsed = parse_change(format_change(change));
    ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
    EXPECT_EQ(*parsed, change);
  }
}

TEST(SharedLog, TruncationAndTrailingBytesAreRefused) {
  const std::string bytes = format_change(every_kind()[3]);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(parse_change(std::string_view(bytes).substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(parse_change(bytes + "x").ok());
  std::string unknown = bytes;
  unknown[0] = 6;
  EXPECT_EQ(parse_change(unknown).status().code(), StatusCode::protocol_error);
}

TEST(SharedLog, ReplicasThatApplyTheSameChangesHaveTheSameResults) {
  StoreState first{StoreLimits{}};
  StoreState second{StoreLimits{}};
  for (int round = 0; round < 2; ++round) {
    for (const Change& change : every_kind()) {
      const ChangeResult here = apply(change, first);
      const ChangeResult there = apply(change, second);
      EXPECT_EQ(here.status, there.status);
      EXPECT_EQ(here.value, there.value);
      EXPECT_EQ(here.number, there.number);
    }
  }
  EXPECT_EQ(first.list(""), second.list(""));
  EXPECT_EQ(first.list("").at("list"), "itemitem");
  EXPECT_EQ(first.list("").at("count"), "-14");
}

TEST(SharedLog, ResultsAreThoseOfTheStore) {
  StoreState state{StoreLimits{}};
  const auto compare = [&](std::optional<std::string> expected, const std::string& desired) {
    return apply({.kind = ChangeKind::compare_set, .key = "k", .value = desired, .expected = std::move(expected)},
                 state);
  };
  EXPECT_EQ(compare("absent", "x").status.code(), StatusCode::not_found);
  EXPECT_EQ(compare(std::nullopt, "first").value, "first");
  EXPECT_EQ(compare(std::nullopt, "second").value, "first") << "the key exists";
  EXPECT_EQ(compare("first", "second").value, "second");
  EXPECT_EQ(apply({.kind = ChangeKind::remove, .key = "k"}, state).number, 1);
  EXPECT_EQ(apply({.kind = ChangeKind::remove, .key = "k"}, state).number, 0);
  EXPECT_EQ(apply({.kind = ChangeKind::append, .key = "k", .value = "abc"}, state).number, 3);
}

}  // namespace
}  // namespace lockstep::python
