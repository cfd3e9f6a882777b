#include "elastic/forming.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <set>
#include <thread>

namespace lockstep::elastic {
namespace {

using namespace membership;

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

const Secret kSecret("secret");

Deadline soon() { return Deadline::after(seconds(20)); }

// A view of a store that calls `before_set` with each key that is set.
class ObservedStore final : public Store {
 public:
  ObservedStore(std::shared_ptr<Store> store, std::function<void(const std::string&)> before_set)
      : store_(std::move(store)), before_set_(std::move(before_set)) {}

  Status set(const std::string& key, const std::string& value, Deadline deadline) override {
    before_set_(key);
    return store_->set(key, value, deadline);
  }
  Result<std::string> get(const std::string& key, Deadline deadline) override { return store_->get(key, deadline); }
  Status wait(std::span<const std::string> keys, Deadline deadline) override { return store_->wait(keys, deadline); }
  Result<std::int64_t> add(const std::string& key, std::int64_t amount, Deadline deadline) override {
    return store_->add(key, amount, deadline);
  }
  Result<std::string> compare_set(const std::string& key, const std::optional<std::string>& expected,
                                  const std::string& desired, Deadline deadline) override {
    return store_->compare_set(key, expected, desired, deadline);
  }
  Result<bool> check(std::span<const std::string> keys, Deadline deadline) override {
    return store_->check(keys, deadline);
  }
  Result<bool> remove(const std::string& key, Deadline deadline) override { return store_->remove(key, deadline); }
  Result<std::map<std::string, std::string>> list(const std::string& prefix, Deadline deadline) override {
    return store_->list(prefix, deadline);
  }
  Result<std::size_t> append(const std::string& key, const std::string& value, Deadline deadline) override {
    return store_->append(key, value, deadline);
  }
  Result<bool> set_last_will(const std::string& key, const std::string& value, Deadline deadline) override {
    return store_->set_last_will(key, value, deadline);
  }
  Status withdraw_last_will(const std::string& key, Deadline deadline) override {
    return store_->withdraw_last_will(key, deadline);
  }
  std::string describe() const override { return store_->describe(); }

 private:
  const std::shared_ptr<Store> store_;
  const std::function<void(const std::string&)> before_set_;
};

// A leader and one member, which is registered in the leader's member store.
struct Pair {
  Pair() {
    leader.store_address = member_store->address();
    registration = value_or_throw(RegistrationClient::begin(leader, {.member = member}, kSecret, soon()));
    registrants = value_or_throw(member_store->registrants());
    answer = {.kind = Answer::Kind::join, .generation = {.number = 1, .id = "g", .members = {leader, member}}};
  }
  Forming leaders(std::shared_ptr<Store> store) const {
    return {.answer = answer,
            .self = leader.id,
            .store = std::move(store),
            .group = {.name = "elastic"},
            .member_store = member_store.get(),
            .registrants = registrants};
  }
  Forming members() const {
    return {.answer = answer,
            .self = member.id,
            .store = value_or_throw(connect_to_member_store(leader, kSecret, soon())),
            .group = {.name = "elastic"}};
  }
  bool member_is_connected() const { return value_or_throw(member_store->is_connected(registrants.front())); }

  Member leader{.id = "a", .host = "here", .pid = 1};
  const Member member{.id = "b", .host = "there", .pid = 2};
  const std::unique_ptr<MemberStore> member_store = value_or_throw(MemberStore::open("127.0.0.1", kSecret, leader.id));
  std::unique_ptr<RegistrationClient> registration;
  std::vector<MemberStore::Registrant> registrants;
  Answer answer;
};

TEST(Forming, AMemberThatDisconnectsWithAnEstablishedGroupIsNotLost) {
  Pair pair;
  std::promise<void> member_has_left;
  // The leader delays its last write. Meanwhile the member's group is established, and the member disconnects.
  const auto slow = std::make_shared<ObservedStore>(pair.member_store->store(), [&](const std::string& key) {
    if (!key.ends_with("/complete/0")) return;
    ASSERT_EQ(member_has_left.get_future().wait_for(seconds(20)), std::future_status::ready);
    while (pair.member_is_connected()) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(200));  // the leader polls its member store many times
  });
  auto leaders = std::async(std::launch::async, [&] { return form_group(pair.leaders(slow), soon()); });
  const auto members = form_group(pair.members(), soon());
  ASSERT_TRUE(members.ok()) << members.status().to_string();
  pair.registration.reset();
  member_has_left.set_value();
  const auto group = leaders.get();
  EXPECT_TRUE(group.ok()) << group.status().to_string();
}

TEST(Forming, ManyGenerationsLeaveAsManyKeysAsFew) {
  Pair pair;
  std::set<std::size_t> counts;
  for (int number = 1; number <= 20; ++number) {
    pair.answer.generation.number = number;
    pair.answer.generation.id = "g" + std::to_string(number);
    auto leaders =
        std::async(std::launch::async, [&] { return form_group(pair.leaders(pair.member_store->store()), soon()); });
    const auto members = form_group(pair.members(), soon());
    ASSERT_TRUE(members.ok()) << members.status().to_string();
    ASSERT_TRUE(leaders.get().ok());
    if (number > 2) counts.insert(value_or_throw(pair.member_store->store()->list("", soon())).size());
  }
  EXPECT_EQ(counts.size(), 1U) << "between " << *counts.begin() << " and " << *counts.rbegin() << " keys";
}

TEST(Forming, AMemberThatDisconnectsEarlierIsReportedAsLost) {
  Pair pair;
  auto leaders =
      std::async(std::launch::async, [&] { return form_group(pair.leaders(pair.member_store->store()), soon()); });
  pair.registration.reset();
  const auto group = leaders.get();
  ASSERT_FALSE(group.ok());
  EXPECT_EQ(group.status().code(), StatusCode::peer_lost);
  EXPECT_THAT(group.status().message(), HasSubstr("host there, pid 2 was lost while the group formed"));
}

}  // namespace
}  // namespace lockstep::elastic
