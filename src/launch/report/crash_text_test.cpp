#include "launch/report/crash_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CrashText, ReadsAnUncaughtException) {
  const auto crash = parse_crash_report(
      "time_ns 1731720000000000123\nstd::runtime_error: first line\nsecond line\nbacktrace:\n"
      "./train(+0x9)[0x1]\n/lib/libstdc++.so.6(__cxa_throw+0x3b)[0x2]\n"
      "./train(_ZN5Model7forwardEv+0x1c)[0x3]\n./train(+0x1234)[0x4]\n");
  ASSERT_TRUE(crash);
  EXPECT_EQ(crash->time_ns, 1731720000000000123);
  EXPECT_EQ(crash->cause, "std::runtime_error: first line\nsecond line");
  EXPECT_THAT(crash->frames, ElementsAre("Model::forward()+0x1c in ./train", "./train+0x1234"));
}

TEST(CrashText, LeavesOutTheFramesThatDeliverASignal) {
  const auto crash = parse_crash_report(
      "time_ns 5\nSIGSEGV (Segmentation fault) at address 0x0\nbacktrace:\n./train(+0x1)[0x1]\n./train(+0x2)[0x2]\n"
      "/lib/x86_64-linux-gnu/libc.so.6(+0x3c050)[0x3]\n./train(main+0x4)[0x4]\n");
  ASSERT_TRUE(crash);
  EXPECT_EQ(crash->cause, "SIGSEGV (Segmentation fault) at address 0x0");
  EXPECT_THAT(crash->frames, ElementsAre("main+0x4 in ./train"));
}

TEST(CrashText, IsEmptyIfTheReportIsIncomplete) {
  EXPECT_FALSE(parse_crash_report(""));
  EXPECT_FALSE(parse_crash_report("time_ns 5\n"));
  EXPECT_FALSE(parse_crash_report("something else\nentirely\n"));
  const auto cut = parse_crash_report("time_ns 5\nSIGBUS (Bus error)\n");
  ASSERT_TRUE(cut);
  EXPECT_THAT(cut->frames, IsEmpty());
}

TEST(CrashText, ReadsTheErrorFileOfTorch) {
  const auto crash = parse_torch_error(
      R"({"message": {"message": "ValueError: bad", "extraInfo": {"py_callstack": "x", "timestamp": "1"}}})");
  ASSERT_TRUE(crash);
  EXPECT_EQ(crash->cause, "ValueError: bad");
  EXPECT_EQ(parse_torch_error(R"({"message": "plain"})")->cause, "plain");
  EXPECT_FALSE(parse_torch_error("{\"message\": {"));
  EXPECT_FALSE(parse_torch_error("[1]"));
}

TEST(CrashText, FindsTheCauseInStderr) {
  EXPECT_EQ(cause_from_stderr("epoch 1\nterminate called after throwing an instance of 'std::logic_error'\n"
                              "  what():  no data\n"),
            "std::logic_error: no data");
  EXPECT_EQ(cause_from_stderr("train: a.cpp:3: int main(): Assertion `x > 0' failed.\n"),
            "train: a.cpp:3: int main(): Assertion `x > 0' failed.");
  EXPECT_EQ(
      cause_from_stderr("Traceback (most recent call last):\n  File \"a.py\", line 1\n    f()\nValueError: bad\n"),
      "ValueError: bad");
  EXPECT_EQ(cause_from_stderr("==1==ERROR: AddressSanitizer: heap-use-after-free on address 0x1\n#0 main\n"),
            "==1==ERROR: AddressSanitizer: heap-use-after-free on address 0x1");
  EXPECT_EQ(cause_from_stderr("loss 0.3\nloss 0.2\n"), "");
}

TEST(CrashText, RecognizesThatAnotherRankIsBlamed) {
  EXPECT_TRUE(reports_lost_peer("lockstep::Error: peer_lost: rank 2 on a (pid 7) has ended"));
  EXPECT_TRUE(reports_lost_peer("RuntimeError: [gloo] Connection closed by peer [127.0.0.1]:4"));
  EXPECT_FALSE(reports_lost_peer("std::runtime_error: peer review lost"));
}

TEST(CrashText, KeepsTheLastLines) {
  EXPECT_THAT(last_lines("a\nb\r\nc", 2), ElementsAre("b", "c"));
  EXPECT_THAT(last_lines("", 2), IsEmpty());
}

}  // namespace
}  // namespace lockstep::launch
