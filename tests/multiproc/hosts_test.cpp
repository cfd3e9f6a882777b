// Ranks on several hosts, as network namespaces.
#include "support/hosts.h"
#include "conformance/call.h"
#include "multiproc/rank_process.h"

namespace lockstep::testing {
namespace {

using conformance::Call;
using conformance::Kind;
using conformance::Memory;

LOCKSTEP_PROCESS_ROLE(collectives_between_hosts) {
  const NothingLeftBehind nothing;
  {
    const auto group = join_world();
    require(group->local_size() == std::atoi(std::getenv("TEST_RANKS_PER_HOST")),
            "ranks of one host were not found to share it: " + group->describe());
    conformance::Values values(group->size(), 1, false);
    std::vector<Call> calls;
    for (const std::size_t count : {0, 1, 1000, 300007}) {
      for (const auto kind : {Kind::all_reduce, Kind::reduce, Kind::reduce_scatter, Kind::broadcast, Kind::all_gather,
                              Kind::all_gather_v, Kind::gather, Kind::scatter, Kind::all_to_all}) {
        for (const auto dtype : {DType::f32, DType::f16}) {
          calls.push_back({.kind = kind,
                           .dtype = dtype,
                           .count = count,
                           .root = static_cast<int>(calls.size()) % group->size(),
                           .memory = static_cast<Memory>(calls.size() % 4)});
        }
      }
    }
    std::size_t largest = 0;
    for (const auto& call : calls) largest = std::max(largest, largest_buffer(call, group->size()));
    conformance::TestBuffers buffers(*group, largest);
    for (const auto& call : calls) run_and_check(*group, call, values, buffers, true);

    std::vector<float> message(100000, 3);
    if (group->rank() == 0) group->send(std::span<const float>(message), group->size() - 1);
    if (group->rank() == group->size() - 1) group->recv(std::span(message), 0);
    group->split(group->rank() % 2)->barrier();
    group->barrier();
  }
  nothing.check();
  return ::testing::Test::HasFailure() ? 1 : 0;
}

StartOptions on(const HostSet& hosts, int ranks_per_host) {
  return {.environment = {{"TEST_RANKS_PER_HOST", std::to_string(ranks_per_host)}}, .hosts = &hosts};
}

TEST(Hosts, TwoWithTwoRanksEach) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  ProcessSet ranks = start_ranks(4, "collectives_between_hosts", on(hosts, 2));
  expect_success(ranks);
}

TEST(Hosts, ThreeWithOneRankEach) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 3);
  ProcessSet ranks = start_ranks(3, "collectives_between_hosts", on(hosts, 1));
  expect_success(ranks);
}

TEST(Hosts, TwoOverIpv6) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  StartOptions options = on(hosts, 2);
  options.environment["MASTER_ADDR"] = HostSet::ipv6_address(0);
  options.environment["LOCKSTEP_STORE_FD"] = std::nullopt;  // that one listens at the IPv4 address
  ProcessSet ranks = start_ranks(4, "collectives_between_hosts", options);
  expect_success(ranks);
}

TEST(Hosts, WithoutASecretAreRefused) {
  LOCKSTEP_MAKE_HOSTS_OR_SKIP(hosts, 2);
  StartOptions options = on(hosts, 1);
  options.environment["LOCKSTEP_SECRET"] = std::nullopt;
  ProcessSet ranks = start_ranks(2, "collectives_between_hosts", options);
  ASSERT_TRUE(ranks.wait(0, in_seconds(30))) << ranks.report();
  EXPECT_EQ(ranks.exit_status(0)->code, kUncaughtExceptionCode);
  EXPECT_NE(ranks.error_output(0).find("LOCKSTEP_SECRET"), std::string::npos) << ranks.report();
}

}  // namespace
}  // namespace lockstep::testing
