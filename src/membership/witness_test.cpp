#include "membership/witness.h"

#include <gtest/gtest.h>

#include "membership/decision.h"
#include "membership/succession.h"

namespace lockstep::membership {
namespace {

Deadline in_a_second() { return Deadline::after(std::chrono::seconds(1)); }

Generation generation(std::int64_t number, const std::string& id, const std::vector<std::string>& members,
                      const std::string& witness) {
  Generation result{.number = number, .id = id, .members = {}, .witness = witness};
  for (const std::string& member : members) result.members.push_back({.id = member});
  return result;
}

// The decision of a part of generation 1, of which the others do not answer.
Decision decide_for(const std::vector<std::string>& part, const Generation& first, const WitnessView* witness) {
  MembershipView view;
  for (const std::string& id : part) {
    view.present.push_back({.member = {.id = id}, .accepted = first, .established = first, .step = 3});
  }
  for (const Member& member : first.members) {
    if (std::ranges::find(part, member.id) == part.end()) {
      view.absent[member.id] = {.kind = Absence::Kind::unreachable};
    }
  }
  if (witness != nullptr) view.witness = *witness;
  return decide(view, {}, "next-" + part.front());
}

class WitnessTest : public ::testing::Test {
 protected:
  WitnessTest() : witness_(Witness::open({.secret = secret_}).value()) {}
  WitnessView ask() const { return ask_witness(witness_->address(), secret_, in_a_second()).value(); }
  Status vote(const WitnessView& seen, const Decision& decision) const {
    return request_vote(witness_->address(), secret_, seen, decision.votes.at(0), decision.answer.generation,
                        in_a_second());
  }

  const Secret secret_{"secret"};
  std::unique_ptr<Witness> witness_;
};

TEST_F(WitnessTest, OneOfTwoHalvesGetsItsVoteAndTheOtherOneLearnsOfIt) {
  const WitnessView seen = ask();
  const Generation first = generation(1, "one", {"a", "b"}, next_register({}, &seen, "job"));
  const Decision left = decide_for({"a"}, first, &seen), right = decide_for({"b"}, first, &seen);
  ASSERT_EQ(left.kind, Decision::Kind::form);
  ASSERT_EQ(right.kind, Decision::Kind::form);
  EXPECT_EQ(right.answer.generation.witness, first.witness);
  ASSERT_TRUE(vote(seen, right).ok());  // not the half with the first member
  EXPECT_EQ(vote(seen, left).code(), StatusCode::aborted);
  const WitnessView later = ask();
  const Decision again = decide_for({"a"}, first, &later);
  EXPECT_EQ(again.kind, Decision::Kind::wait) << "the other half continues";
  // The half that has the vote continues from there, with another vote.
  EXPECT_EQ(decide_for({"b"}, right.answer.generation, &later).kind, Decision::Kind::form);
}

TEST_F(WitnessTest, AMajorityNeedsNoWitness) {
  const WitnessView seen = ask();
  const Generation first = generation(1, "one", {"a", "b", "c"}, next_register({}, &seen, "job"));
  const Decision two = decide_for({"b", "c"}, first, nullptr);
  EXPECT_EQ(two.kind, Decision::Kind::form);
  EXPECT_TRUE(two.votes.empty());
  EXPECT_EQ(two.answer.generation.witness, "") << "a witness that is lost is dropped";
  EXPECT_EQ(decide_for({"a"}, first, &seen).kind, Decision::Kind::wait);
}

TEST_F(WitnessTest, WithoutItsWitnessHalfIsNotEnoughEvenWithTheFirst) {
  const WitnessView seen = ask();
  const Generation first = generation(1, "one", {"a", "b"}, next_register({}, &seen, "job"));
  const Decision decision = decide_for({"a"}, first, nullptr);
  EXPECT_EQ(decision.kind, Decision::Kind::wait);
  EXPECT_NE(decision.reason.find("witness cannot be reached"), std::string::npos) << decision.reason;
}

TEST_F(WitnessTest, AWitnessThatWasRestartedHasNoVoteInOlderGenerations) {
  const WitnessView before = ask();
  const Generation first = generation(1, "one", {"a", "b"}, next_register({}, &before, "job"));
  witness_ = Witness::open({.secret = secret_}).value();
  const WitnessView after = ask();
  EXPECT_NE(before.id, after.id);
  EXPECT_EQ(decide_for({"b"}, first, &after).kind, Decision::Kind::wait);
  // With a majority the next generation has the new one.
  const Decision both = decide_for({"a", "b"}, first, &after);
  EXPECT_TRUE(both.answer.generation.witness.starts_with(after.id));
}

TEST_F(WitnessTest, AnotherSecretIsRefused) {
  EXPECT_FALSE(ask_witness(witness_->address(), Secret("another"), in_a_second()).ok());
}

}  // namespace
}  // namespace lockstep::membership
