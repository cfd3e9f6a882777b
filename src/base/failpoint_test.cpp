#include "base/failpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace lockstep {
namespace {

class Failpoint : public ::testing::Test {
 protected:
  Failpoint() {
    char name[] = "/tmp/lockstep_failpoint_XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~Failpoint() override { std::filesystem::remove_all(folder_); }
  void arm(const std::string& file) const { std::ofstream(folder_ + "/" + file).put('\n'); }
  bool armed(const std::string& file) const { return std::filesystem::exists(folder_ + "/" + file); }
  // A process that reaches the place "here" and then exits with 3. The variable is read once, so in a new process.
  pid_t start() const {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    ::setenv("LOCKSTEP_FAILPOINTS", folder_.c_str(), 1);
    failpoint("here");
    ::_exit(3);
  }
  static int status_of(pid_t pid, int options = 0) {
    int status = 0;
    ::waitpid(pid, &status, options);
    return status;
  }

  std::string folder_;
};

TEST_F(Failpoint, KillsOneProcessThatReachesIt) {
  arm("here.kill");
  const int first = status_of(start());
  ASSERT_TRUE(WIFSIGNALED(first));
  EXPECT_EQ(WTERMSIG(first), SIGKILL);
  EXPECT_FALSE(armed("here.kill"));
  EXPECT_EQ(WEXITSTATUS(status_of(start())), 3) << "the second process must not be hit";
}

TEST_F(Failpoint, StopsUntilTheProcessIsContinued) {
  arm("here.stop");
  const pid_t pid = start();
  ASSERT_TRUE(WIFSTOPPED(status_of(pid, WUNTRACED)));
  ::kill(pid, SIGCONT);
  EXPECT_EQ(WEXITSTATUS(status_of(pid)), 3);
}

TEST_F(Failpoint, Delays) {
  arm("here.delay");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(WEXITSTATUS(status_of(start())), 3);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(500));
}

TEST_F(Failpoint, DoesNothingAtOtherPlaces) {
  arm("there.kill");
  EXPECT_EQ(WEXITSTATUS(status_of(start())), 3);
  EXPECT_TRUE(armed("there.kill"));
}

}  // namespace
}  // namespace lockstep
