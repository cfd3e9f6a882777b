// Backend "gloo" between processes: the errors that survivors get, and that nothing is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <iostream>
#include <thread>

#include "lockstep/lockstep.h"
#include "support/hosts.h"
#include "support/process_resources.h"
#include "support/process_set.h"

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class GlooProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto names = available_backends();
    if (std::find(names.begin(), names.end(), "gloo") == names.end()) GTEST_SKIP() << "this LibTorch has no Gloo";
  }
};

// Prints what `action` throws; the exit code is 0 if that was `expected`.
int report(StatusCode expected, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    std::cout << "threw: " << error.what() << std::endl;
    return error.code() == expected ? 0 : 3;
  }
  std::cout << "did not throw" << std::endl;
  return 4;
}

const ProcessGroupOptions kGloo{.backend = "gloo", .peer_timeout = 1s};

// Memory of tensors that were freed after the error is used again: Gloo must not write there any more.
bool memory_stays(std::size_t elements) {
  std::vector<at::Tensor> others;
  for (int i = 0; i < 8; ++i) others.push_back(torch::full({static_cast<std::int64_t>(elements)}, 42.0F));
  std::this_thread::sleep_for(200ms);
  return std::all_of(others.begin(), others.end(),
                     [](const at::Tensor& other) { return other.eq(42).all().item<bool>(); });
}

LOCKSTEP_PROCESS_ROLE(gloo_sums_until_a_loss) {
  torch::set_num_threads(1);
  const std::int64_t elements = 1 << 20;
  auto before = ProcessResources::now();
  if (std::getenv("LOCKSTEP_STORE_FD") != nullptr) --before.fds;  // the group takes it over
  int code = 0;
  {
    ProcessGroupScope job(kGloo);
    code = report(StatusCode::peer_lost, [&] {
      for (int step = 0;; ++step) {
        std::vector<Work> works;
        for (int i = 0; i < 3; ++i) works.push_back(all_reduce_async(torch::ones({elements})));
        for (const Work& work : works) work.wait();
        if (step == 3) print_mark("running");
      }
    });
    if (!memory_stays(elements)) return 5;
    if (report(StatusCode::peer_lost, [] { barrier(); }) != 0) return 6;
  }
  const auto after = ProcessResources::settle(before, in_seconds(10));
  if (after == before) {
    std::cout << "resources as before" << std::endl;
  } else {
    std::cout << "before: " << before.fds << " fds, " << before.threads << " threads; after: " << describe(after)
              << std::endl;
  }
  return code;
}

void expect_survivors_name_rank_1(ProcessSet& ranks, double within) {
  const Deadline soon = in_seconds(within);
  for (int rank : {0, 2}) ASSERT_TRUE(ranks.wait_for_line(rank, "threw: peer_lost", soon)) << ranks.report();
  for (int rank : {0, 2}) {
    const auto status = ranks.wait(rank, in_seconds(20));
    ASSERT_TRUE(status) << ranks.report();
    EXPECT_TRUE(status->success()) << ranks.report();
    // Between two operations there is none to name.
    EXPECT_THAT(ranks.output(rank), AnyOf(HasSubstr("threw: peer_lost: all_reduce(count 1048576, f32, sum) #"),
                                          HasSubstr("threw: peer_lost: group 'world' ")))
        << ranks.report();
    EXPECT_THAT(ranks.output(rank), AllOf(HasSubstr("rank 1 (host "), HasSubstr("pid " + std::to_string(ranks.pid(1))),
                                          HasSubstr("resources as before")))
        << ranks.report();
  }
}

TEST_F(GlooProcesses, AKilledRankIsNamedAtOnceAndLeavesNothingBehind) {
  for (int round = 0; round < 3; ++round) {
    ProcessSet ranks = start_ranks(3, "gloo_sums_until_a_loss");
    ASSERT_TRUE(ranks.wait_for_line(1, "running", in_seconds(40))) << ranks.report();
    ranks.kill(1, SIGKILL);
    expect_survivors_name_rank_1(ranks, 5);
  }
}

TEST_F(GlooProcesses, AStoppedRankIsNamedAfterThePeerTimeout) {
  ProcessSet ranks = start_ranks(3, "gloo_sums_until_a_loss");
  ASSERT_TRUE(ranks.wait_for_line(1, "running", in_seconds(40))) << ranks.report();
  ranks.kill(1, SIGSTOP);
  expect_survivors_name_rank_1(ranks, 10);
  ranks.kill(1, SIGKILL);
}

// Rank 0 waits for rank 2, which is alive; Gloo itself would keep waiting.
LOCKSTEP_PROCESS_ROLE(gloo_waits_for_another) {
  ProcessGroupScope job(kGloo);
  barrier();
  print_mark("waiting");
  const at::Tensor message = torch::zeros({10});
  if (job.rank() == 0) return report(StatusCode::peer_lost, [&] { recv(message, 2); });
  if (job.rank() == 1) return report(StatusCode::peer_lost, [&] { recv(message, 0); });
  const Deadline end = in_seconds(30);
  while (job.group()->health().ok() && !end.expired()) std::this_thread::sleep_for(5ms);
  return report(StatusCode::peer_lost, [] { barrier(); });
}

TEST_F(GlooProcesses, ALossEndsAWaitForAnotherRank) {
  ProcessSet ranks = start_ranks(3, "gloo_waits_for_another");
  for (int rank : {0, 1, 2}) ASSERT_TRUE(ranks.wait_for_line(rank, "waiting", in_seconds(40))) << ranks.report();
  ranks.kill(1, SIGKILL);
  ASSERT_TRUE(ranks.wait_all(in_seconds(10))) << ranks.report();
  for (int rank : {0, 2}) {
    EXPECT_TRUE(ranks.exit_status(rank)->success()) << ranks.report();
    EXPECT_THAT(ranks.output(rank), HasSubstr("rank 1 (host ")) << ranks.report();
  }
}

LOCKSTEP_PROCESS_ROLE(gloo_leaves_early) {
  ProcessGroupScope job(kGloo);
  barrier();
  if (job.rank() == 1) return 0;
  return report(StatusCode::peer_lost, [] { barrier(); });
}

TEST_F(GlooProcesses, ARankThatLeavesEndsItsPeersOperations) {
  ProcessSet ranks = start_ranks(2, "gloo_leaves_early");
  ASSERT_TRUE(ranks.wait_all(in_seconds(40))) << ranks.report();
  EXPECT_TRUE(ranks.all_succeeded()) << ranks.report();
  EXPECT_THAT(ranks.output(0), HasSubstr("barrier #2")) << ranks.report();
}

// Over the network between hosts, found by the variable.
LOCKSTEP_PROCESS_ROLE(sums_on_the_default_backend) {
  ProcessGroupScope job;
  const at::Tensor sum = torch::full({1000}, job.rank() + 1.0);
  all_reduce(sum);
  std::cout << get_backend() << " sum " << sum[999].item<double>() << ", local size " << job.group()->local_size()
            << std::endl;
  return 0;
}

TEST_F(GlooProcesses, ConnectBetweenHosts) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  ProcessSet ranks =
      start_ranks(4, "sums_on_the_default_backend", {.environment = {{"LOCKSTEP_BACKEND", "gloo"}}, .hosts = &hosts});
  ASSERT_TRUE(ranks.wait_all(in_seconds(40))) << ranks.report();
  EXPECT_TRUE(ranks.all_succeeded()) << ranks.report();
  EXPECT_THAT(ranks.output(3), HasSubstr("gloo sum 10, local size 2")) << ranks.report();
}

TEST_F(GlooProcesses, OneEngineForEachDevice) {
  ProcessSet ranks = start_ranks(2, "sums_on_the_default_backend", {.environment = {{"LOCKSTEP_BACKEND", "cpu:gloo"}}});
  ASSERT_TRUE(ranks.wait_all(in_seconds(40))) << ranks.report();
  EXPECT_TRUE(ranks.all_succeeded()) << ranks.report();
  EXPECT_THAT(ranks.output(1), HasSubstr("cpu:gloo sum 3, local size 2")) << ranks.report();
}

LOCKSTEP_PROCESS_ROLE(asks_for_what_is_not_there) {
  return report(StatusCode::unavailable, [] { init_process_group({.backend = "xccl"}); });
}

TEST(Backends, AnEngineThatLibTorchLacksIsReportedBeforeTheRendezvous) {
  const auto names = available_backends();
  if (std::find(names.begin(), names.end(), "xccl") != names.end()) GTEST_SKIP() << "this LibTorch has XCCL";
  ProcessSet ranks = start_ranks(2, "asks_for_what_is_not_there", {.rank_variables = [](int rank) {
                                   return rank == 0 ? Environment{} : Environment{{"MASTER_PORT", "1"}};
                                 }});
  ASSERT_TRUE(ranks.wait_all(in_seconds(20))) << ranks.report();
  EXPECT_TRUE(ranks.all_succeeded()) << ranks.report();
  EXPECT_THAT(ranks.output(1), HasSubstr("init_process_group: this LibTorch was built without XCCL; it has: "));
}

}  // namespace
}  // namespace lockstep::testing
