#include "membership/member_store.h"

#include <gtest/gtest.h>

namespace lockstep::membership {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Secret kStoreSecret("secret");

struct Owner {
  explicit Owner(const std::string& id) : store(value_or_throw(MemberStore::open("127.0.0.1", kStoreSecret, id))) {
    member = {.id = id, .host = "here", .pid = 1, .store_address = store->address()};
  }
  std::unique_ptr<MemberStore> store;
  Member member;
};

Deadline store_deadline() { return Deadline::after(seconds(5)); }

TEST(MemberStore, PublishesItsOwnersGeneration) {
  Owner owner("a");
  EXPECT_EQ(probe_member_store(owner.member, kStoreSecret, store_deadline()).newest().number, 0);
  ASSERT_TRUE(owner.store->publish({.number = 3, .id = "g", .members = {owner.member}}).ok());
  const ProbeResult result = probe_member_store(owner.member, kStoreSecret, store_deadline());
  EXPECT_EQ(result.kind, ProbeResult::Kind::answered);
  EXPECT_EQ(result.newest().number, 3);
}

TEST(MemberStore, ThatHasEndedOrBelongsToAnotherProcessRefuses) {
  Owner owner("a");
  Member other = owner.member;
  other.id = "b";
  EXPECT_EQ(probe_member_store(other, kStoreSecret, store_deadline()).kind, ProbeResult::Kind::refused);
  const Member gone = owner.member;
  owner.store.reset();
  EXPECT_EQ(probe_member_store(gone, kStoreSecret, store_deadline()).kind, ProbeResult::Kind::refused);
}

TEST(MemberStore, WithAnotherSecretCountsAsSilent) {
  Owner owner("a");
  EXPECT_EQ(probe_member_store(owner.member, Secret("wrong"), store_deadline()).kind, ProbeResult::Kind::silent);
}

TEST(MemberStore, RegistrantsGetTheirAnswer) {
  Owner owner("a");
  const Registration registration{.member = {.id = "b"}, .step = 4};
  auto client = value_or_throw(RegistrationClient::begin(owner.member, registration, kStoreSecret, store_deadline()));
  const auto registrants = value_or_throw(owner.store->registrants());
  ASSERT_EQ(registrants.size(), 1u);
  EXPECT_EQ(registrants[0].registration, registration);
  EXPECT_FALSE(client->wait(milliseconds(1)).answer.has_value());
  ASSERT_TRUE(owner.store->answer(registrants[0], {.kind = Answer::Kind::finished}).ok());
  EXPECT_EQ(client->wait(milliseconds(5000)).answer->kind, Answer::Kind::finished);
  EXPECT_TRUE(value_or_throw(owner.store->registrants()).empty());
  EXPECT_TRUE(value_or_throw(owner.store->is_connected(registrants[0])));
}

TEST(MemberStore, TwoRegistrationsOfOneProcessAreTwo) {
  Owner owner("a");
  const Registration one{.member = {.id = "b"}, .step = 4}, two{.member = {.id = "b"}, .step = 5};
  auto first = value_or_throw(RegistrationClient::begin(owner.member, one, kStoreSecret, store_deadline()));
  EXPECT_EQ(value_or_throw(owner.store->registrants()).at(0).registration, one);
  auto second = value_or_throw(RegistrationClient::begin(owner.member, two, kStoreSecret, store_deadline()));
  const auto both = value_or_throw(owner.store->registrants());
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].registration.step + both[1].registration.step, 9);
}

TEST(MemberStore, RegistrantsThatDisconnectAreRemoved) {
  Owner owner("a");
  auto client =
      value_or_throw(RegistrationClient::begin(owner.member, {.member = {.id = "b"}}, kStoreSecret, store_deadline()));
  ASSERT_EQ(value_or_throw(owner.store->registrants()).size(), 1u);
  client.reset();
  const Deadline deadline = store_deadline();
  while (!value_or_throw(owner.store->registrants()).empty()) ASSERT_FALSE(deadline.expired());
  EXPECT_TRUE(value_or_throw(owner.store->store()->list("registration/", store_deadline())).empty());
}

TEST(MemberStore, ARegistrantDetectsThatTheStoreHasEnded) {
  Owner owner("a");
  auto client =
      value_or_throw(RegistrationClient::begin(owner.member, {.member = {.id = "b"}}, kStoreSecret, store_deadline()));
  owner.store.reset();
  EXPECT_TRUE(client->wait(milliseconds(1000)).lost);
}

}  // namespace
}  // namespace lockstep::membership
