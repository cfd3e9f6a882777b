#include "launch/report/stacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <string>

#include "lockstep/base/deadline.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;

// A process that sleeps; killed and reaped by the destructor.
class Sleeper {
 public:
  Sleeper() {
    const char* const arguments[] = {"sleep", "600", nullptr};
    if (::posix_spawnp(&pid_, "sleep", nullptr, nullptr, const_cast<char**>(arguments), environ) != 0) pid_ = -1;
    wait_for('S');
  }
  ~Sleeper() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  pid_t pid() const { return pid_; }
  char state() const {
    std::ifstream file("/proc/" + std::to_string(pid_) + "/stat");
    std::string line;
    std::getline(file, line);
    return line.at(line.rfind(')') + 2);
  }
  bool wait_for(char state) const {
    for (const Deadline deadline = Deadline::after(std::chrono::seconds(10)); !deadline.expired(); ::usleep(1000)) {
      if (this->state() == state) return true;
    }
    return false;
  }

 private:
  pid_t pid_ = -1;
};

TEST(Stacks, OfARunningProcessAreTakenAndItRunsOn) {
  const Sleeper sleeper;
  const std::string text = take_stacks(sleeper.pid(), {.limit = std::chrono::seconds(20)});
  if (text.starts_with("no stacks:")) GTEST_SKIP() << text;
  EXPECT_THAT(text, HasSubstr("#0"));
  EXPECT_THAT(text, HasSubstr("sleep"));
  EXPECT_TRUE(sleeper.wait_for('S'));
}

TEST(Stacks, AnInterruptedDebuggerLeavesTheProcessRunning) {
  const Sleeper sleeper;
  if (take_stacks(sleeper.pid()).starts_with("no stacks:")) GTEST_SKIP() << "no debugger, or no permission";
  for (int microseconds = 0; microseconds < 40'000; microseconds += 1'000) {
    take_stacks(sleeper.pid(), {.limit = std::chrono::milliseconds(microseconds / 1000)});
    ASSERT_TRUE(sleeper.wait_for('S')) << "state " << sleeper.state() << " after " << microseconds << " us";
  }
}

TEST(Stacks, AStoppedProcessIsLeftAlone) {
  const Sleeper sleeper;
  ::kill(sleeper.pid(), SIGSTOP);
  ASSERT_TRUE(sleeper.wait_for('T'));
  EXPECT_EQ(take_stacks(sleeper.pid()), "no stacks: it is stopped by a signal\n");
  EXPECT_EQ(sleeper.state(), 'T');
}

TEST(Stacks, AProcessThatHasEndedHasNone) {
  EXPECT_EQ(take_stacks(999'999'999), "no stacks: its process has ended\n");
  EXPECT_EQ(describe_threads(999'999'999), "its process has ended\n");
}

TEST(Stacks, ThreadsAreDescribedWithoutADebugger) {
  const Sleeper sleeper;
  const std::string text = describe_threads(sleeper.pid());
  EXPECT_TRUE(text.starts_with("thread " + std::to_string(sleeper.pid()) + " (sleep): sleeping")) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

TEST(Stacks, WithoutADebuggerOrPermissionTheAdviceNamesWhatToDo) {
  EXPECT_TRUE(stack_command(1, "/nonexistent").empty());
  EXPECT_THAT(ptrace_advice(1), HasSubstr("kernel.yama.ptrace_scope is 1"));
  EXPECT_THAT(ptrace_advice(0), HasSubstr("root"));
}

}  // namespace
}  // namespace lockstep::launch
