// What an MPI may do that those of this machine do not: fake_plugin.cpp in their place. Runs with sanitizers too.
#include <gmock/gmock.h>

#include <iostream>

#include "mpi/mpi_communicator.h"
#include "support/process_resources.h"
#include "support/process_set.h"

namespace lockstep::testing {
namespace {

using mpi::MpiCommunicator;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Sums over the world of one rank, twice, and prints what went wrong.
LOCKSTEP_PROCESS_ROLE(fake_rank) {
  for (int round = 0; round < 2; ++round) {
    auto world = MpiCommunicator::create_world("mpi", {.init_timeout = std::chrono::seconds(2)});
    if (!world.ok()) {
      std::cout << world.status().to_string() << std::endl;
      return 3;
    }
    std::vector<float> data(1000, 2.5F);
    (*world)->submit(Operation::all_reduce(Buffer(std::span(data)), {.op = ReduceOp::avg})).wait();
    const int ranks[] = {0};
    auto group = (*world)->new_group(ranks, "again");
    (*group)->submit(Operation::all_reduce(Buffer(std::span(data)))).wait();
    if (data[999] != 2.5F) return 1;
    std::cout << (*world)->describe() << "round " << round << std::endl;
  }
  return 0;
}

LOCKSTEP_PROCESS_ROLE(failing_fake_rank) {
  auto world = MpiCommunicator::create_world("mpi", {});
  const Work failed = (*world)->submit(Operation::barrier());
  std::cout << failed.wait(in_seconds(10)).to_string() << '\n' << (*world)->health().to_string() << std::endl;
  std::vector<float> data(10);
  std::cout << "then: "
            << (*world)->submit(Operation::all_reduce(Buffer(std::span(data)))).wait(in_seconds(10)).to_string()
            << std::endl;
  return 0;
}

// As one rank; each of `variables` is set for it.
std::string run_fake(const std::string& role, Environment variables, int exit_code) {
  variables.emplace("LOCKSTEP_MPI_PLUGIN", FAKE_MPI_PLUGIN);
  ProcessSet ranks = start_ranks(1, role, {.environment = std::move(variables)});
  EXPECT_TRUE(ranks.wait_all(in_seconds(50))) << ranks.report();
  EXPECT_EQ(ranks.exit_status(0) ? ranks.exit_status(0)->code : -1, exit_code) << ranks.report();
  return ranks.output(0);
}

TEST(FakeMpi, StartsOnceAndIsFinalisedWhenTheProcessExits) {
  EXPECT_THAT(run_fake("fake_rank", {}, 0),
              AllOf(HasSubstr("over Fake MPI 1.0"), HasSubstr("round 1"), HasSubstr("finalised")));
}

TEST(FakeMpi, IsNotFinalisedIfTheProgramStartedIt) {
  EXPECT_THAT(run_fake("fake_rank", {{"FAKE_MPI_BY_PROGRAM", "1"}, {"FAKE_MPI_THREADS", "2"}}, 0),
              AllOf(HasSubstr("round 1"), Not(HasSubstr("finalised"))));
}

TEST(FakeMpi, WithoutThreadsIsRefused) {
  EXPECT_THAT(run_fake("fake_rank", {{"FAKE_MPI_THREADS", "0"}}, 3),
              AllOf(HasSubstr("Fake MPI 1.0 gives MPI_THREAD_SINGLE"), HasSubstr("MPI_THREAD_FUNNELED"),
                    HasSubstr("support for threads")));
}

TEST(FakeMpi, StartedByAProgramNeedsMoreThreads) {
  EXPECT_THAT(run_fake("fake_rank", {{"FAKE_MPI_BY_PROGRAM", "1"}, {"FAKE_MPI_THREADS", "1"}}, 3),
              AllOf(HasSubstr("with MPI_THREAD_FUNNELED"), HasSubstr("at least MPI_THREAD_SERIALIZED"),
                    HasSubstr("call MPI_Init_thread with MPI_THREAD_MULTIPLE")));
}

TEST(FakeMpi, ThatDoesNotStartTimesOut) {
  EXPECT_THAT(run_fake("fake_rank", {{"FAKE_MPI_HANGS", "1"}}, 3),
              AllOf(HasSubstr("MPI did not start within"), HasSubstr("not all of them call init_process_group()")));
}

TEST(FakeMpi, OfAnotherVersionIsRefused) {
  EXPECT_THAT(run_fake("fake_rank", {{"FAKE_MPI_VERSION", "9"}}, 3),
              AllOf(HasSubstr("has version 9 of the plug-in interface"), HasSubstr("build and install both together")));
}

TEST(FakeMpi, ErrorsAreReportedWithMpisMessageAndEndTheGroup) {
  EXPECT_THAT(run_fake("failing_fake_rank", {}, 0),
              AllOf(HasSubstr("barrier #1: MPI returned error 77: fake error 77"),
                    HasSubstr("then: unavailable: group 'world'"), Not(HasSubstr("finalised"))));
}

}  // namespace
}  // namespace lockstep::testing
