#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/testing/test_ranks.h"
#include "support/process_resources.h"

namespace lockstep {
namespace {

using test_ranks::connect_all;
using test_ranks::expect_mesh;
using test_ranks::FilePlace;
using test_ranks::MemoryPlace;
using test_ranks::RankSetup;
using test_ranks::StorePlace;
using test_ranks::TcpPlace;
using test_ranks::world_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct PlaceKind {
  const char* name;
  std::function<std::unique_ptr<StorePlace>()> make;
};

class ConnectMesh : public ::testing::TestWithParam<PlaceKind> {
 protected:
  std::unique_ptr<StorePlace> place_ = GetParam().make();
};

TEST_P(ConnectMesh, ConnectsTheRanksOfOneHost) {
  for (const int size : {1, 2, 3, 5, 8}) {
    auto meshes = connect_all(world_of(size, *place_));
    expect_mesh(meshes);
    if (HasFatalFailure()) return;
    EXPECT_TRUE(meshes[0]->topology.single_host());
    EXPECT_EQ(meshes[0]->topology.local_size(), size);
    if (size > 1) {
      EXPECT_EQ(meshes[0]->links->data_links(1), 0);
    }
  }
}

TEST_P(ConnectMesh, LeavesNoKeysBehind) {
  auto meshes = connect_all(world_of(4, *place_));
  expect_mesh(meshes);
  const auto keys = place_->open()->list("", test_ranks::in_seconds(5));
  ASSERT_TRUE(keys.ok());
  EXPECT_TRUE(keys->empty()) << "for example " << keys->begin()->first;
}

TEST_P(ConnectMesh, ManyGroupsLeaveNoKeysBehind) {
  for (int group = 0; group < 20; ++group) {
    auto setups = world_of(2, *place_);
    for (auto& setup : setups) setup.options.scope = "world/" + std::to_string(group);
    auto meshes = connect_all(setups);
    expect_mesh(meshes);
    if (HasFatalFailure()) return;
  }
  EXPECT_TRUE(place_->open()->list("", test_ranks::in_seconds(5))->empty());
}

// A rank of an earlier run announced itself, and its process has ended.
TEST_P(ConnectMesh, IsNotConfusedByAnEarlierRun) {
  for (const int rank : {0, 1, 2}) {
    const auto failed = connect_all({{.rank = rank, .world_size = 3, .store = place_->open(), .timeout = 0.05}});
    EXPECT_EQ(failed[0].status().code(), StatusCode::timed_out);
  }
  auto meshes = connect_all(world_of(2, *place_));
  expect_mesh(meshes);
}

TEST_P(ConnectMesh, EveryGenerationHasItsOwnId) {
  const auto setups = world_of(2, *place_);
  auto first = connect_all(setups);
  auto second = connect_all(setups);
  expect_mesh(first);
  expect_mesh(second);
  EXPECT_NE(first[0]->group_id, second[0]->group_id);
}

TEST_P(ConnectMesh, GroupsOfDifferentScopesFormAtTheSameTime) {
  auto setups = world_of(3, *place_);
  auto others = world_of(3, *place_);
  for (auto& setup : others) setup.options.scope = "world/sub/1";
  setups.insert(setups.end(), others.begin(), others.end());
  auto meshes = connect_all(setups);
  std::vector<Result<Mesh>> second;
  for (int i = 0; i < 3; ++i) second.push_back(std::move(meshes[3 + i]));
  meshes.erase(meshes.begin() + 3, meshes.end());
  expect_mesh(meshes);
  expect_mesh(second);
}

TEST_P(ConnectMesh, DifferentHostIdsAreConnectedByTcp) {
  auto setups = world_of(4, *place_);
  for (auto& setup : setups) {
    setup.options.host_id = setup.rank % 2 == 0 ? "even" : "odd";
    setup.options.data_streams = 3;
  }
  auto meshes = connect_all(setups);
  expect_mesh(meshes);
  if (HasFatalFailure()) return;
  EXPECT_THAT(meshes[0]->topology.hosts, ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
  EXPECT_EQ(meshes[0]->links->data_links(1), 3);
  EXPECT_EQ(meshes[0]->links->data_links(2), 1);
}

TEST_P(ConnectMesh, LeavesNothingBehind) {
  using lockstep::testing::ProcessResources;
  auto setups = world_of(4, *place_);
  setups[3].options.host_id = "other";
  connect_all(setups);  // creates what is allocated once and kept
  const auto before = ProcessResources::now();
  {
    auto meshes = connect_all(setups);
    expect_mesh(meshes);
  }
  const auto after = ProcessResources::now();
  EXPECT_EQ(before, after) << lockstep::testing::describe(after);
}

INSTANTIATE_TEST_SUITE_P(Stores, ConnectMesh,
                         ::testing::Values(PlaceKind{"memory", [] { return std::make_unique<MemoryPlace>(); }},
                                           PlaceKind{"file", [] { return std::make_unique<FilePlace>(); }},
                                           PlaceKind{"tcp", [] { return std::make_unique<TcpPlace>(); }}),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

TEST(ConnectMeshOnce, ThirtyTwoRanks) {
  TcpPlace place;
  auto meshes = connect_all(world_of(32, place));
  expect_mesh(meshes);
}

// Different simulated hosts, all on this machine.
TEST(ConnectMeshOnce, RanksDetectThatTheyShareProcessors) {
  const int processors = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  if (processors > 16) GTEST_SKIP() << "this machine has " << processors << " processors, more than the ranks here";
  for (const int size : {processors, processors + 1}) {
    if (size == 1) continue;
    MemoryPlace place;
    auto setups = world_of(size, place);
    for (RankSetup& setup : setups) setup.options.host_id = "host" + std::to_string(setup.rank);
    const auto meshes = connect_all(setups);
    for (const auto& mesh : meshes) {
      ASSERT_TRUE(mesh.ok()) << mesh.status().message();
      EXPECT_EQ(mesh->topology.oversubscribed, size > processors);
    }
  }
}

TEST(ConnectMeshOnce, WithASecret) {
  MemoryPlace place;
  auto setups = world_of(3, place);
  for (auto& setup : setups) setup.secret = Secret("of the job");
  setups[2].options.host_id = "other";
  auto meshes = connect_all(setups);
  expect_mesh(meshes);
}

TEST(ConnectMeshOnce, RejectsInvalidArguments) {
  MemoryPlace place;
  RankSetup setup{.rank = 2, .world_size = 2, .store = place.open()};
  EXPECT_THAT(test_ranks::connect(setup).status().message(), HasSubstr("rank 2 is not below world size 2"));
  setup.rank = 0;
  setup.options.data_streams = 0;
  EXPECT_THAT(test_ranks::connect(setup).status().message(), HasSubstr("data_streams is 0"));
}

TEST(ConnectMeshOnce, AMissingInterfaceIsReportedToAllRanks) {
  MemoryPlace place;
  auto setups = world_of(2, place);
  for (auto& setup : setups) setup.options.host_id = std::to_string(setup.rank);
  setups[1].options.network_interface = "eth99";
  for (const auto& mesh : connect_all(setups)) EXPECT_THAT(mesh.status().message(), HasSubstr("'eth99'"));
}

}  // namespace
}  // namespace lockstep
