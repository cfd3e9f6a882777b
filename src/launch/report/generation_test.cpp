#include "launch/report/generation.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

membership::Member member(std::int64_t pid, const std::string& host) {
  return {.id = std::to_string(pid), .host = host, .pid = pid, .started = 7};
}

TEST(GenerationReport, NamesTheRankOfEachWorkerAndTheHostsOfTheOthers) {
  const membership::Generation generation{
      .number = 3, .id = "x", .members = {member(30, "a"), member(10, "a"), member(40, "b"), member(41, "b")}};
  const std::map<int, ProcessIdentity> workers = {
      {0, {.pid = 10, .started = 7}}, {1, {.pid = 20, .started = 7}}, {2, {.pid = 30, .started = 7}}};
  EXPECT_EQ(describe_generation(generation, workers), "generation 3: 4 ranks: 0 = worker 2, 1 = worker 0; 2, 3 on b");
}

TEST(GenerationReport, AReusedPidIsAnotherProcess) {
  const membership::Generation generation{.number = 1, .id = "x", .members = {member(10, "b")}};
  EXPECT_EQ(describe_generation(generation, {{0, {.pid = 10, .started = 8}}}), "generation 1: 1 rank: 0 on b");
}

TEST(GenerationReport, ManyWorkersAreNotListedOneByOne) {
  membership::Generation generation{.number = 1, .id = "x"};
  std::map<int, ProcessIdentity> workers;
  for (int i = 0; i < 40; ++i) {
    generation.members.push_back(member(100 + i, "a"));
    workers[i] = {.pid = 100 + i, .started = 7};
  }
  EXPECT_EQ(describe_generation(generation, workers), "generation 1: 40 ranks: 0-39 on this node");
}

}  // namespace
}  // namespace lockstep::launch
