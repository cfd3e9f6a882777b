// Jobs at the same time and one after the other, with and without a secret.
#include <lockstep/store/stores.h>

#include <gmock/gmock.h>

#include <vector>

#include "multiproc/rank_process.h"

namespace lockstep::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

// Ranks that meet at a store which the test serves.
StartOptions at_store_of(const StoreServer& server) {
  return {.environment = {{"MASTER_PORT", std::to_string(server.port())},
                          {"LOCKSTEP_STORE_IS_SERVED", "1"},
                          {"LOCKSTEP_STORE_FD", std::nullopt}}};
}

void sum_once(Communicator& group) {
  std::vector<double> data(1000, group.rank() + 1.0);
  group.all_reduce(std::span(data));
  require(data.back() == group.size() * (group.size() + 1) / 2.0, "a wrong sum");
}

LOCKSTEP_PROCESS_ROLE(groups_in_sequence) {
  const NothingLeftBehind nothing;
  for (int turn = 0; turn < 20; ++turn) {
    const auto group = join_world();
    sum_once(*group);
  }
  nothing.check();
  return 0;
}

TEST(Jobs, FormManyGroupsInSequenceOverOneStore) {
  const auto server = serve_tcp_store();
  ProcessSet ranks = start_ranks(3, "groups_in_sequence", at_store_of(*server));
  expect_success(ranks);
}

LOCKSTEP_PROCESS_ROLE(sum_for_a_while) {
  const NothingLeftBehind nothing;
  {
    const auto group = join_world();
    for (int turn = 0; turn < 200; ++turn) sum_once(*group);
  }
  nothing.check();
  return 0;
}

TEST(Jobs, RunSideBySide) {
  ProcessSet one = start_ranks(3, "sum_for_a_while");
  ProcessSet other = start_ranks(2, "sum_for_a_while");
  expect_success(one);
  expect_success(other);
}

TEST(Jobs, RunWithASecret) {
  ProcessSet ranks =
      start_ranks(3, "sum_for_a_while", {.environment = {{"LOCKSTEP_SECRET", "open sesame, and 16 more characters"}}});
  expect_success(ranks);
}

LOCKSTEP_PROCESS_ROLE(expects_refusal) {
  const NothingLeftBehind nothing;
  try {
    Communicator::create({.group = {.init_timeout = std::chrono::seconds(3)}});
  } catch (const Error& error) {
    print_mark("refused: " + error.status().to_string());
  }
  nothing.check();
  return 0;
}

TEST(Jobs, ARankWithAnotherSecretIsRefused) {
  ProcessSet ranks =
      start_ranks(2, "expects_refusal", {.rank_variables = [](int rank) {
                    return Environment{{"LOCKSTEP_SECRET", rank == 0 ? "open sesame, and 16 more characters"
                                                                     : "open barley, and 16 more characters"}};
                  }});
  expect_success(ranks);
  EXPECT_THAT(ranks.output(1), HasSubstr("refused: unauthenticated")) << ranks.report();
  EXPECT_THAT(ranks.output(1), HasSubstr("do not have the same secret"));
  EXPECT_THAT(ranks.output(0), HasSubstr("rank 1")) << "the waiting rank names the missing one\n" << ranks.report();
}

TEST(Jobs, ARankWithoutTheSecretIsRefused) {
  ProcessSet ranks = start_ranks(
      2, "expects_refusal", {.rank_variables = [](int rank) {
        return rank == 0 ? Environment{{"LOCKSTEP_SECRET", "open sesame, and 16 more characters"}} : Environment{};
      }});
  expect_success(ranks);
  EXPECT_THAT(ranks.output(1), HasSubstr("refused: unauthenticated")) << ranks.report();
  EXPECT_THAT(ranks.output(0), HasSubstr("rank 1")) << ranks.report();
}

TEST(Jobs, AMissingRankIsNamed) {
  const auto server = serve_tcp_store();
  StartOptions options = at_store_of(*server);
  options.environment["WORLD_SIZE"] = "3";
  ProcessSet ranks = start_ranks(2, "expects_refusal", options);
  expect_success(ranks);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(ranks.output(rank), HasSubstr("refused: timed_out")) << ranks.report();
    EXPECT_THAT(ranks.output(rank), HasSubstr("2")) << ranks.report();
  }
}

}  // namespace
}  // namespace lockstep::testing
