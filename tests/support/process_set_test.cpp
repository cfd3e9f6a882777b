#include "support/process_set.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "unset" : value;
}

// Until the test kills it; the harness must do so if the test forgets.
[[noreturn]] void wait_for_the_end() {
  while (true) ::pause();
}

LOCKSTEP_PROCESS_ROLE(print_environment) {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "LOCAL_RANK", "LOCKSTEP_SECRET", "EXTRA"}) {
    print_mark(std::string(name) + "=" + variable(name));
  }
  std::cerr << "complaint of rank " << variable("RANK") << "\n";
  return std::stoi(variable("RANK"));
}

LOCKSTEP_PROCESS_ROLE(print_much) {
  const std::string line(1000, 'x');
  for (int i = 0; i < 1000; ++i) std::cout << line << "\n";
  return 0;
}

LOCKSTEP_PROCESS_ROLE(throw_something) { throw std::runtime_error("the reason"); }

LOCKSTEP_PROCESS_ROLE(hang) {
  print_mark("hanging");
  wait_for_the_end();
}

LOCKSTEP_PROCESS_ROLE(hang_without_mark) { wait_for_the_end(); }

LOCKSTEP_PROCESS_ROLE(start_hanging_child) {
  ProcessSet grandchild = start_ranks(1, "hang");
  if (!grandchild.wait_for_line(0, "hanging", in_seconds(60))) return 1;
  print_mark("grandchild " + std::to_string(grandchild.pid(0)) + ".");
  wait_for_the_end();
}

// Rank 0 accepts on the inherited socket; the others connect to it by address.
LOCKSTEP_PROCESS_ROLE(meet_at_master) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(variable("MASTER_PORT"))));
  ::inet_pton(AF_INET, variable("MASTER_ADDR").c_str(), &address.sin_addr);
  if (variable("RANK") != "0") {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    return ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 ? 0 : 1;
  }
  const int listener = std::stoi(variable("LOCKSTEP_STORE_FD"));
  for (int expected = std::stoi(variable("WORLD_SIZE")) - 1; expected > 0;) {
    if (::accept(listener, nullptr, nullptr) >= 0) {
      --expected;
    } else if (errno != EAGAIN) {
      return 2;
    }
  }
  return 0;
}

TEST(ProcessSet, GivesEachRankItsEnvironmentOutputAndExitCode) {
  ::setenv("LOCAL_RANK", "7", 1);
  ::setenv("LOCKSTEP_SECRET", "leaked", 1);
  ProcessSet ranks = start_ranks(
      3, "print_environment",
      {.environment = {{"EXTRA", "for all"}}, .rank_variables = [](int rank) {
         return rank == 2 ? Environment{{"EXTRA", "for two"}, {"MASTER_ADDR", std::nullopt}} : Environment{};
       }});
  ::unsetenv("LOCAL_RANK");
  ::unsetenv("LOCKSTEP_SECRET");
  ASSERT_TRUE(ranks.wait_all(in_seconds(60))) << ranks.report();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ranks.exit_status(rank)->code, rank);
    EXPECT_THAT(ranks.output(rank), HasSubstr("RANK=" + std::to_string(rank) + "\n"));
    EXPECT_THAT(ranks.output(rank), HasSubstr("WORLD_SIZE=3\n"));
    EXPECT_THAT(ranks.output(rank), HasSubstr("LOCAL_RANK=unset\n"));
    EXPECT_THAT(ranks.output(rank), HasSubstr("LOCKSTEP_SECRET=unset\n"));
    EXPECT_THAT(ranks.output(rank), HasSubstr(rank == 2 ? "EXTRA=for two\n" : "EXTRA=for all\n"));
    EXPECT_THAT(ranks.output(rank), HasSubstr(rank == 2 ? "MASTER_ADDR=unset\n" : "MASTER_ADDR=127.0.0.1\n"));
    EXPECT_EQ(ranks.error_output(rank), "complaint of rank " + std::to_string(rank) + "\n");
  }
  EXPECT_FALSE(ranks.all_succeeded());
  EXPECT_THAT(ranks.report(), HasSubstr("rank 2 (pid " + std::to_string(ranks.pid(2)) + "): exit code 2"));
}

TEST(ProcessSet, PassesTheListeningSocketToRankZero) {
  ProcessSet ranks = start_ranks(4, "meet_at_master");
  ASSERT_TRUE(ranks.wait_all(in_seconds(60))) << ranks.report();
  EXPECT_TRUE(ranks.all_succeeded()) << ranks.report();
}

TEST(ProcessSet, CollectsMoreOutputThanAPipeHolds) {
  ProcessSet ranks = start_ranks(2, "print_much");
  ASSERT_TRUE(ranks.wait_all(in_seconds(60)));
  EXPECT_TRUE(ranks.all_succeeded());
  EXPECT_EQ(ranks.output(1).size(), 1001U * 1000U);
}

TEST(ProcessSet, TurnsAnExceptionIntoAnExitCode) {
  ProcessSet ranks = start_ranks(1, "throw_something");
  const auto status = ranks.wait(0, in_seconds(60));
  ASSERT_TRUE(status) << ranks.report();
  EXPECT_EQ(status->code, kUncaughtExceptionCode);
  EXPECT_THAT(ranks.error_output(0), HasSubstr("the reason"));
}

TEST(ProcessSet, SignalsOneRankAndDetectsItsEnd) {
  ProcessSet ranks = start_ranks(2, "hang");
  ASSERT_TRUE(ranks.wait_for_line(1, "hanging", in_seconds(60)));
  ASSERT_TRUE(ranks.kill(1, SIGSTOP));
  EXPECT_FALSE(ranks.wait(1, in_seconds(0.05)));
  ASSERT_TRUE(ranks.kill(1, SIGKILL));
  const auto status = ranks.wait(1, in_seconds(60));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->signal, SIGKILL);
  EXPECT_EQ(status->to_string(), "killed by signal 9 (Killed)");
  EXPECT_FALSE(ranks.kill(1, SIGKILL));
  EXPECT_FALSE(ranks.exit_status(0));
}

TEST(ProcessSet, WaitForLineEndsAtTheDeadlineAndWithTheProcess) {
  ProcessSet hanging = start_ranks(1, "hang_without_mark");
  EXPECT_FALSE(hanging.wait_for_line(0, "hanging", in_seconds(0.05)));
  ProcessSet ended = start_ranks(1, "throw_something");
  EXPECT_FALSE(ended.wait_for_line(0, "hanging", in_seconds(600)));
  EXPECT_TRUE(ended.wait_for_line(0, "the reason", in_seconds(600)));
}

// False for a zombie too: if its parent is dead, it may take long until init reaps it.
bool process_runs(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string stat;
  std::getline(file, stat);
  const auto name_end = stat.rfind(") ");
  return name_end != std::string::npos && stat[name_end + 2] != 'Z' && stat[name_end + 2] != 'X';
}

TEST(ProcessSet, KillsRemainingProcessesWhenDestroyed) {
  pid_t running = 0;
  pid_t stopped = 0;
  {
    ProcessSet ranks = start_ranks(2, "hang");
    running = ranks.pid(0);
    stopped = ranks.pid(1);
    ranks.kill(1, SIGSTOP);
    EXPECT_TRUE(process_runs(running));
  }
  EXPECT_FALSE(process_runs(running));
  EXPECT_FALSE(process_runs(stopped));
}

TEST(ProcessSet, ChildrenDieWithTheirParent) {
  ProcessSet parent = start_ranks(1, "start_hanging_child");
  ASSERT_TRUE(parent.wait_for_line(0, "grandchild", in_seconds(60))) << parent.report();
  const std::string text = parent.output(0);
  const pid_t grandchild = std::stoi(text.substr(text.find(' ')));
  ASSERT_TRUE(process_runs(grandchild));
  parent.kill(0, SIGKILL);
  const Deadline deadline = in_seconds(60);
  while (process_runs(grandchild) && !deadline.expired()) std::this_thread::yield();
  EXPECT_FALSE(process_runs(grandchild));
}

TEST(ProcessSet, StartsOtherProgramsAsRanks) {
  ProcessSet ranks = start_program(2, {"sh", "-c", "echo rank $RANK of $WORLD_SIZE, $1; exit $RANK", "sh", "argument"});
  ASSERT_TRUE(ranks.wait_all(in_seconds(60))) << ranks.report();
  EXPECT_EQ(ranks.output(0), "rank 0 of 2, argument\n");
  EXPECT_EQ(ranks.output(1), "rank 1 of 2, argument\n");
  EXPECT_EQ(ranks.exit_status(1)->code, 1);
}

TEST(ProcessSet, RefusesAnUnknownRole) { EXPECT_THROW(start_ranks(1, "no such role"), std::invalid_argument); }

}  // namespace
}  // namespace lockstep::testing
