#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/process_set.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Ended {
  int code;
  std::string output;
};

Ended run(const std::string& what) {
  ProcessSet program = start_program(1, {LOCKSTEP_SPAWN_PROGRAM, what});
  if (!program.wait_all(in_seconds(60))) return {-1, program.report()};
  return {program.exit_status(0)->code, program.output(0) + program.error_output(0)};
}

TEST(Spawn, RunsTheFunctionInEveryProcessAndMayBeCalledAgain) {
  const Ended ended = run("sum");
  EXPECT_EQ(ended.code, 0) << ended.output;
  // "again" comes from the processes of the second call too: they run main() up to there.
  EXPECT_EQ(ended.output, "sum 6 of 3\nagain\nagain\nagain\nsum 3 of 2\n");
}

TEST(Spawn, NamesTheRankThatFailedFirstWithItsException) {
  const Ended ended = run("throw");
  EXPECT_EQ(ended.code, 3) << ended.output;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("rank 1 (pid"), HasSubstr("exit code 1: the disk is on fire")));
}

TEST(Spawn, NamesTheSignalAndKillsRanksThatDoNotEnd) {
  const Ended ended = run("die");
  EXPECT_EQ(ended.code, 3) << ended.output;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("rank 2 (pid"), HasSubstr("signal 11")));
}

TEST(Spawn, PassesOnAnExceptionOfMoreBytesThanAPipeHolds) {
  const Ended ended = run("throw at length");
  EXPECT_EQ(ended.code, 3) << ended.output.substr(0, 200);
  EXPECT_THAT(ended.output, HasSubstr("exit code 1: first words ..."));
  EXPECT_THAT(ended.output, HasSubstr("... last words\n"));
  EXPECT_GT(ended.output.size(), std::size_t{200} << 10);
}

TEST(Spawn, ShortensAnExceptionOfMegabytes) {
  const Ended ended = run("throw without end");
  EXPECT_EQ(ended.code, 3) << ended.output.substr(0, 200);
  EXPECT_THAT(ended.output, HasSubstr("exit code 1: first words ..."));
  EXPECT_THAT(ended.output, HasSubstr("bytes more)\n"));
  EXPECT_LT(ended.output.size(), std::size_t{2} << 20);
}

TEST(Spawn, DoesNotWaitForAProcessThatADeadRankForked) {
  const Ended ended = run("die before a child");
  EXPECT_EQ(ended.code, 3) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("rank 0 (pid"));
}

TEST(Spawn, RefusesInvalidArguments) {
  EXPECT_THAT(run("none").output, HasSubstr("nprocs is 0"));
  EXPECT_THAT(run("nested").output, HasSubstr("cannot be nested"));
}

}  // namespace
}  // namespace lockstep::testing
