#include "elastic/rank_store.h"

#include <gtest/gtest.h>

namespace lockstep::elastic {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Secret kSecret("secret");

struct Owner {
  explicit Owner(const std::string& id) : store(value_or_throw(RankStore::open("127.0.0.1", kSecret, id))) {
    member = {.id = id, .host = "here", .pid = 1, .store_address = store->address()};
  }
  std::unique_ptr<RankStore> store;
  Member member;
};

Deadline soon() { return Deadline::after(seconds(5)); }

TEST(RankStore, PublishesItsOwnersGeneration) {
  Owner owner("a");
  EXPECT_EQ(probe_rank_store(owner.member, kSecret, soon()).accepted.number, 0);
  ASSERT_TRUE(owner.store->publish({.number = 3, .id = "g", .members = {owner.member}}).ok());
  const ProbeResult result = probe_rank_store(owner.member, kSecret, soon());
  EXPECT_EQ(result.kind, ProbeResult::Kind::answered);
  EXPECT_EQ(result.accepted.number, 3);
}

TEST(RankStore, ThatHasEndedOrBelongsToAnotherProcessRefuses) {
  Owner owner("a");
  Member other = owner.member;
  other.id = "b";
  EXPECT_EQ(probe_rank_store(other, kSecret, soon()).kind, ProbeResult::Kind::refused);
  const Member gone = owner.member;
  owner.store.reset();
  EXPECT_EQ(probe_rank_store(gone, kSecret, soon()).kind, ProbeResult::Kind::refused);
}

TEST(RankStore, WithAnotherSecretCountsAsSilent) {
  Owner owner("a");
  EXPECT_EQ(probe_rank_store(owner.member, Secret("wrong"), soon()).kind, ProbeResult::Kind::silent);
}

TEST(RankStore, RegistrantsGetTheirAnswer) {
  Owner owner("a");
  const Registration registration{.member = {.id = "b"}, .step = 4};
  auto client = value_or_throw(RegistrationClient::begin(owner.member, registration, kSecret, soon()));
  const auto registrants = value_or_throw(owner.store->registrants());
  ASSERT_EQ(registrants.size(), 1u);
  EXPECT_EQ(registrants[0].registration, registration);
  EXPECT_FALSE(client->wait(milliseconds(1)).answer.has_value());
  ASSERT_TRUE(owner.store->answer(registrants[0], {.kind = Answer::Kind::finished}).ok());
  EXPECT_EQ(client->wait(milliseconds(5000)).answer->kind, Answer::Kind::finished);
  EXPECT_TRUE(value_or_throw(owner.store->registrants()).empty());
  EXPECT_TRUE(value_or_throw(owner.store->is_connected(registrants[0])));
}

TEST(RankStore, RegistrantsThatDisconnectAreRemoved) {
  Owner owner("a");
  auto client = value_or_throw(RegistrationClient::begin(owner.member, {.member = {.id = "b"}}, kSecret, soon()));
  ASSERT_EQ(value_or_throw(owner.store->registrants()).size(), 1u);
  client.reset();
  const Deadline deadline = soon();
  while (!value_or_throw(owner.store->registrants()).empty()) ASSERT_FALSE(deadline.expired());
  EXPECT_TRUE(value_or_throw(owner.store->store()->list("registration/", soon())).empty());
}

TEST(RankStore, ARegistrantDetectsThatTheStoreHasEnded) {
  Owner owner("a");
  auto client = value_or_throw(RegistrationClient::begin(owner.member, {.member = {.id = "b"}}, kSecret, soon()));
  owner.store.reset();
  EXPECT_TRUE(client->wait(milliseconds(1000)).lost);
}

}  // namespace
}  // namespace lockstep::elastic
