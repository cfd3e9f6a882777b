#include "membership/attester.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "membership/roster.h"

namespace lockstep::membership {
namespace {

Deadline in_a_second() { return Deadline::after(std::chrono::seconds(1)); }

// A child that does nothing, and a roster with one generation.
class AttesterTest : public ::testing::Test {
 protected:
  AttesterTest() {
    char name[] = "/tmp/lockstep_attester_XXXXXX";
    folder_ = ::mkdtemp(name);
    roster_ = folder_ + "/roster";
    EXPECT_TRUE(offer_roster(roster_, {.generation = kAccepted}).ok());
    child_ = ::fork();
    if (child_ == 0) {
      while (true) ::pause();
    }
    process_ = find_process(child_).value();
    member_ = {.id = "m", .pid = process_.pid, .started = process_.started, .site = "site"};
  }
  ~AttesterTest() override {
    if (child_ > 0) end_child();
    std::filesystem::remove_all(folder_);
  }
  void end_child() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = -1;
  }
  std::optional<Attestation> find_as(const std::string& site) const {
    return find_attestation(member_, site, roster_, secret_, in_a_second());
  }

  static inline const Generation kAccepted{.number = 5, .id = "g5", .members = {{.id = "m"}}};
  const Secret secret_;
  std::string folder_, roster_;
  pid_t child_ = -1;
  ProcessIdentity process_;
  Member member_;
};

TEST_F(AttesterTest, TheKernelAttestsTheEndOfAProcessOfTheSite) {
  EXPECT_FALSE(find_as("site"));
  ::kill(child_, SIGSTOP);
  EXPECT_FALSE(find_as("site")) << "a stopped process may continue";
  ::kill(child_, SIGKILL);
  while (!has_ended(process_)) ::usleep(1000);  // a zombie until it is reaped, but it has ended
  ASSERT_TRUE(find_as("site"));
  EXPECT_EQ(find_as("site")->newest, kAccepted);
  end_child();
  EXPECT_TRUE(find_as("site"));
}

TEST_F(AttesterTest, AnotherProcessWithTheSamePidIsNotTheMember) {
  member_.started -= 1;
  EXPECT_TRUE(find_as("site")) << "the one that was meant has ended";
}

TEST_F(AttesterTest, OtherSitesAskTheLauncher) {
  const auto attester = Attester::open({.secret = secret_});
  ASSERT_TRUE(attester.ok()) << attester.status().to_string();
  member_.attester = (*attester)->address();
  EXPECT_FALSE(find_as("another site"));
  end_child();
  EXPECT_FALSE(find_as("another site")) << "the launcher has not noticed it yet";
  ASSERT_TRUE((*attester)->attest(process_, roster_).ok());
  ASSERT_TRUE(find_as("another site"));
  EXPECT_EQ(find_as("another site")->newest, kAccepted);
}

TEST_F(AttesterTest, WithoutAnAttesterNothingIsKnown) {
  end_child();
  EXPECT_FALSE(find_as("another site"));
  EXPECT_FALSE(find_as(""));
  member_.attester = "127.0.0.1:1";  // refuses
  EXPECT_FALSE(find_as("another site"));
}

TEST_F(AttesterTest, WithoutAReadableRosterNothingIsAttested) {
  const auto attester = Attester::open({.secret = secret_});
  ASSERT_TRUE(attester.ok());
  end_child();
  EXPECT_FALSE((*attester)->attest(process_, folder_ + "/none/roster").ok());
}

TEST_F(AttesterTest, EndProcessWaitsUntilItHasEnded) {
  ::kill(child_, SIGSTOP);
  ASSERT_TRUE(end_process(process_, in_a_second()).ok());
  EXPECT_TRUE(has_ended(process_));
  EXPECT_TRUE(end_process(process_, in_a_second()).ok());
  ProcessIdentity other = this_process();
  other.started -= 1;
  EXPECT_TRUE(end_process(other, in_a_second()).ok()) << "a reused pid: the one that was meant has ended";
}

}  // namespace
}  // namespace lockstep::membership
