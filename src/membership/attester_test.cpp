#include "membership/attester.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/net/socket.h"
#include "membership/roster.h"
#include "store/tcp/tcp_store.h"

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
  EXPECT_EQ(find_as("site")->newest(), kAccepted);
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
  EXPECT_EQ(find_as("another site")->newest(), kAccepted);
}

TEST_F(AttesterTest, AnAttestationHasTheNewestGenerationsOfTheSite) {
  const auto attester = Attester::open({.secret = secret_});
  ASSERT_TRUE(attester.ok());
  for (const std::int64_t number : {7, 8, 11, 12}) {
    const Generation next{.number = number, .id = "g" + std::to_string(number), .members = {{.id = "m"}}};
    ASSERT_TRUE(offer_roster(roster_, {.generation = next}).ok());
  }
  end_child();
  ASSERT_TRUE((*attester)->attest(process_, roster_).ok());
  const auto from_kernel = find_as("site");
  member_.attester = (*attester)->address();
  const auto from_launcher = find_as("another site");
  ASSERT_TRUE(from_kernel && from_launcher);
  std::vector<std::int64_t> numbers;
  for (const Generation& one : from_launcher->accepted) numbers.push_back(one.number);
  EXPECT_EQ(numbers, (std::vector<std::int64_t>{12, 11, 8, 7}));
  EXPECT_EQ(from_kernel->accepted, from_launcher->accepted);
}

TEST_F(AttesterTest, TheGenerationInWhichAnotherHostFinishedTheJobIsAttested) {
  const Generation last{.number = 9, .id = "g9", .members = {{.id = "x"}}};
  ASSERT_TRUE(offer_roster(roster_, {.generation = last, .finished = true}).ok());
  end_child();
  const auto attestation = find_as("site");
  ASSERT_TRUE(attestation);
  EXPECT_EQ(attestation->accepted, (std::vector<Generation>{last, kAccepted}));
}

TEST_F(AttesterTest, AJobThatRestartsForEverDoesNotFillTheStore) {
  const auto attester = Attester::open({.secret = secret_});
  ASSERT_TRUE(attester.ok()) << attester.status().to_string();
  end_child();
  const auto ends = static_cast<std::int64_t>(Attester::kKeptAttestations) + 50;
  for (std::int64_t i = 1; i <= ends; ++i) {
    ASSERT_TRUE((*attester)->attest({.pid = process_.pid, .started = process_.started + i}, roster_).ok());
  }
  const auto place = parse_host_port((*attester)->address()).value();
  const auto store = TcpStore::connect(place.host, place.port, secret_, in_a_second()).value();
  EXPECT_EQ(store->list("ended/", in_a_second())->size(), Attester::kKeptAttestations);
  member_.attester = (*attester)->address();
  member_.started = process_.started + ends;
  EXPECT_TRUE(find_as("another site")) << "the latest are kept";
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
