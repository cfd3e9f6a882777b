#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/command.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  int exit_code;
  std::string out;
  std::string err;
};

Outcome run_with(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "lockstep");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int exit_code = run(static_cast<int>(arguments.size()), arguments.data());
  return {exit_code, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

TEST(Command, HelpListsTheSubcommands) {
  const Outcome outcome = run_with({"--help"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("run"));
  EXPECT_THAT(outcome.out, HasSubstr("bench"));
}

TEST(Command, VersionIsTheProjects) {
  const Outcome outcome = run_with({"--version"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, ::testing::MatchesRegex("lockstep [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST(Command, BenchHelpListsCollectivesAndTheirOptions) {
  const Outcome bench = run_with({"bench", "--help"});
  EXPECT_EQ(bench.exit_code, 0);
  EXPECT_THAT(bench.out, HasSubstr("reduce_scatter"));
  const Outcome all_reduce = run_with({"bench", "all_reduce", "--help"});
  EXPECT_EQ(all_reduce.exit_code, 0);
  for (const char* option :
       {"--nproc", "--bytes", "--dtype", "--memory", "--peer", "--rounds", "--warm", "--json", "--hosts", "--rate"})
    EXPECT_THAT(all_reduce.out, HasSubstr(option));
}

TEST(Command, InvalidCommandLinesAreExplainedAndExitWithTwo) {
  const std::vector<std::pair<std::vector<const char*>, const char*>> cases = {
      {{}, "subcommand"},
      {{"dance"}, "dance"},
      {{"run"}, "the program is missing"},
      {{"run", "--nproc-per-node", "0", "true"}, "--nproc-per-node is '0'"},
      {{"bench", "dance"}, "dance"},
      {{"bench"}, "subcommand"},
      {{"bench", "all_reduce", "--bytes", "lots"}, "'lots' is not a size"},
      {{"bench", "all_reduce", "--nproc", "many"}, "--nproc"},
      {{"bench", "all_reduce", "--nproc", "0"}, "it must be 1 to"},
      {{"bench", "all_reduce", "--dtype", "f8"}, "'f8' is not an element type"},
      {{"bench", "all_reduce", "--memory", "paper"}, "'paper' is not a kind of memory"},
      {{"bench", "all_reduce", "--peer", "nccl"}, "'nccl' is not a peer"},
      {{"bench", "all_reduce", "--hosts", "1"}, "'1' is not a layout of hosts"},
      {{"bench", "ddp", "--backend", "mpi"}, "choose lockstep, gloo, openmpi, mpich"},
      {{"bench", "ddp", "--rate", "1gbit"}, "it needs --hosts"},
      {{"bench", "all_reduce", "--rate", "fast"}, "'fast' is not a rate"},
      {{"bench", "all_reduce", "--rate", "1gbit"}, "it needs --hosts"},
      {{"bench", "all_reduce", "--rounds", "0"}, "--rounds"},
      {{"bench", "all_reduce", "--frobnicate"}, "--frobnicate"},
  };
  for (const auto& [arguments, message] : cases) {
    const Outcome outcome = run_with(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << message;
    EXPECT_THAT(outcome.err, HasSubstr(message));
    EXPECT_EQ(outcome.out, "") << message;
  }
}

}  // namespace
}  // namespace lockstep::cli
