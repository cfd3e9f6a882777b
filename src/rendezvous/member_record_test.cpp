#include "rendezvous/member_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

MemberRecord sample(int rank) {
  return {.nonce = "n" + std::to_string(rank),
          .rank = rank,
          .world_size = 8,
          .pid = 4711,
          .host = "node7",
          .process_space = "p",
          .network_space = "w",
          .host_id = "",
          .unix_name = "lockstep-1",
          .machine = "m",
          .processors = 64};
}

// No prefix of a record and no record with a byte too many is accepted.
template <typename Parser>
void expect_exact_length(const std::string& bytes, Parser parse) {
  EXPECT_TRUE(parse(bytes).ok());
  for (std::size_t size = 1; size < bytes.size(); ++size) EXPECT_FALSE(parse(bytes.substr(0, size)).ok()) << size;
  EXPECT_FALSE(parse(bytes + '\0').ok());
}

TEST(MemberRecord, ClaimsAreReadOneAfterTheOther) {
  const auto parsed = parse_member_records(format(sample(0)) + format(sample(7)));
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_THAT(*parsed, ::testing::ElementsAre(sample(0), sample(7)));
  EXPECT_TRUE(parse_member_records("")->empty());
  expect_exact_length(format(sample(1)), parse_member_records);
}

TEST(MemberRecord, RanksOutsideTheirWorldAreRejected) {
  auto record = sample(0);
  record.rank = 8;
  EXPECT_FALSE(parse_member_records(format(record)).ok());
  record.rank = -1;
  EXPECT_FALSE(parse_member_records(format(record)).ok());
  record = sample(0);
  record.processors = -1;
  EXPECT_FALSE(parse_member_records(format(record)).ok());
  record = sample(0);
  record.nonce.clear();
  EXPECT_FALSE(parse_member_records(format(record)).ok());
}

TEST(MemberRecord, InvitationsAndFailuresSurviveARoundTrip) {
  const Invitation invitation{"session", sample(0)};
  EXPECT_EQ(*parse_invitation(format(invitation)), invitation);
  expect_exact_length(format(invitation), parse_invitation);
  const FailureRecord failure{Status(StatusCode::peer_lost, "rank 2 died"), 2};
  EXPECT_EQ(*parse_failure(format(failure)), failure);
  expect_exact_length(format(failure), parse_failure);
  EXPECT_FALSE(parse_failure(format(FailureRecord{Status(), -1})).ok()) << "success is no failure";
}

TEST(MemberRecord, ListsSurviveARoundTrip) {
  const std::vector<std::string> values{"", "a", std::string(1000, 'x')};
  EXPECT_EQ(*parse_values(format(values)), values);
  expect_exact_length(format(values), parse_values);
  const std::vector<std::int32_t> ranks{0, 5, 2};
  EXPECT_EQ(*parse_ranks(format(ranks)), ranks);
  expect_exact_length(format(ranks), parse_ranks);
}

TEST(MemberRecord, AnotherVersionOrKindIsNamed) {
  auto bytes = format(sample(0));
  bytes[4] = 9;
  EXPECT_THAT(parse_member_records(bytes).status().message(), HasSubstr("version 9, but this process has version 2"));
  EXPECT_THAT(parse_invitation(format(sample(0))).status().message(), HasSubstr("kind 1, but kind 2 was expected"));
  EXPECT_THAT(parse_ranks("no such thing").status().message(), HasSubstr("not a rendezvous record"));
}

}  // namespace
}  // namespace lockstep
