#include "elastic/rank_store.h"

#include <gtest/gtest.h>

namespace lockstep::elastic {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Secret kSecret("secret");

struct Owner {
  explicit Owner(const std::string& id) : door(value_or_throw(RankStore::open("127.0.0.1", kSecret, id))) {
    member = {.id = id, .host = "here", .pid = 1, .door = door->address()};
  }
  std::unique_ptr<RankStore> door;
  Member member;
};

Deadline soon() { return Deadline::after(seconds(5)); }

TEST(RankStore, ShowsItsOwnersGeneration) {
  Owner owner("a");
  EXPECT_EQ(look_at(owner.member, kSecret, soon()).accepted.number, 0);
  ASSERT_TRUE(owner.door->publish({.number = 3, .id = "g", .members = {owner.member}}).ok());
  const Look look = look_at(owner.member, kSecret, soon());
  EXPECT_EQ(look.kind, Look::Kind::answered);
  EXPECT_EQ(look.accepted.number, 3);
}

TEST(RankStore, ThatIsGoneOrAnothersRefuses) {
  Owner owner("a");
  Member other = owner.member;
  other.id = "b";
  EXPECT_EQ(look_at(other, kSecret, soon()).kind, Look::Kind::refused);
  const Member gone = owner.member;
  owner.door.reset();
  EXPECT_EQ(look_at(gone, kSecret, soon()).kind, Look::Kind::refused);
}

TEST(RankStore, WithAnotherSecretCountsAsSilent) {
  Owner owner("a");
  EXPECT_EQ(look_at(owner.member, Secret("wrong"), soon()).kind, Look::Kind::silent);
}

TEST(RankStore, VisitorsRegisterAndGetTheirAnswer) {
  Owner owner("a");
  const Registration registration{.member = {.id = "b"}, .step = 4};
  auto visit = value_or_throw(RegistrationClient::begin(owner.member, registration, kSecret, soon()));
  const auto visitors = value_or_throw(owner.door->visitors());
  ASSERT_EQ(visitors.size(), 1u);
  EXPECT_EQ(visitors[0].registration, registration);
  EXPECT_FALSE(visit->wait(milliseconds(1)).answer.has_value());
  ASSERT_TRUE(owner.door->answer(visitors[0], {.kind = Answer::Kind::finished}).ok());
  EXPECT_EQ(visit->wait(milliseconds(5000)).answer->kind, Answer::Kind::finished);
  EXPECT_TRUE(value_or_throw(owner.door->visitors()).empty());
  EXPECT_TRUE(value_or_throw(owner.door->is_connected(visitors[0])));
}

TEST(RankStore, VisitorsWhoLeaveAreForgotten) {
  Owner owner("a");
  auto visit = value_or_throw(RegistrationClient::begin(owner.member, {.member = {.id = "b"}}, kSecret, soon()));
  ASSERT_EQ(value_or_throw(owner.door->visitors()).size(), 1u);
  visit.reset();
  const Deadline deadline = soon();
  while (!value_or_throw(owner.door->visitors()).empty()) ASSERT_FALSE(deadline.expired());
  EXPECT_TRUE(value_or_throw(owner.door->store()->list("visit/", soon())).empty());
}

TEST(RankStore, AVisitorNoticesThatItIsGone) {
  Owner owner("a");
  auto visit = value_or_throw(RegistrationClient::begin(owner.member, {.member = {.id = "b"}}, kSecret, soon()));
  owner.door.reset();
  EXPECT_TRUE(visit->wait(milliseconds(1000)).lost);
}

}  // namespace
}  // namespace lockstep::elastic
