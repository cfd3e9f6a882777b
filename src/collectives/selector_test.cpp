#include "collectives/selector.h"

#include <gtest/gtest.h>

#include "collectives/chunks.h"

namespace lockstep {
namespace {

Topology hosts_of(std::vector<int> host_of_rank) {
  std::vector<Member> members;
  for (std::size_t rank = 0; rank < host_of_rank.size(); ++rank) {
    members.push_back({.rank = static_cast<int>(rank), .host = "h", .pid = 1, .host_index = host_of_rank[rank]});
  }
  return make_topology(0, members);
}

Algorithm choice(const Topology& topology, const std::string& overrides, OperationKind kind, DType dtype,
                 std::size_t count) {
  auto selector = Selector::create(topology, overrides);
  EXPECT_TRUE(selector.ok()) << selector.status().to_string();
  CollectiveCall call;
  call.descriptor.kind = kind;
  call.descriptor.dtype = dtype;
  call.descriptor.count = count;
  return selector->choose(call);
}

TEST(Selector, FollowsTopologyAndSize) {
  const auto all_reduce = OperationKind::all_reduce;
  EXPECT_EQ(choice(hosts_of({0, 0}), "", all_reduce, DType::f32, 2), Algorithm::host_inline);
  EXPECT_EQ(choice(hosts_of({0, 0}), "", all_reduce, DType::f32, 1 << 20), Algorithm::host_shared);
  EXPECT_EQ(choice(hosts_of({0, 1}), "", all_reduce, DType::f32, 2), Algorithm::small);
  EXPECT_EQ(choice(hosts_of({0, 1}), "", all_reduce, DType::f16, 1 << 20), Algorithm::pair);
  EXPECT_EQ(choice(hosts_of({0, 1, 2}), "", all_reduce, DType::f32, 1 << 20), Algorithm::ring);
  EXPECT_EQ(choice(hosts_of({0, 1, 2}), "", all_reduce, DType::f16, 1 << 20), Algorithm::direct)
      << "a ring would round 16-bit floats at every hop";
  EXPECT_EQ(choice(hosts_of({0, 0, 1, 1}), "", all_reduce, DType::f32, 1 << 20), Algorithm::hierarchical);
  EXPECT_EQ(choice(hosts_of({0, 0, 1, 1}), "", all_reduce, DType::f32, 2), Algorithm::hierarchical);
  EXPECT_EQ(choice(hosts_of({0, 0, 1, 1}), "", all_reduce, DType::f16, 2), Algorithm::small)
      << "partial results of a host would round 16-bit floats twice";
  EXPECT_EQ(choice(hosts_of({0, 0, 1, 1}), "", OperationKind::barrier, DType::u8, 0), Algorithm::hierarchical);
  EXPECT_EQ(choice(hosts_of({0, 1, 2, 3}), "", OperationKind::barrier, DType::u8, 0), Algorithm::small);
}

TEST(Selector, OverridesApplyToOperationsThatCanUseThem) {
  const auto topology = hosts_of({0, 1, 2});
  EXPECT_EQ(choice(topology, "all_reduce=direct", OperationKind::all_reduce, DType::f32, 1 << 20), Algorithm::direct);
  EXPECT_EQ(choice(topology, "all_reduce=direct", OperationKind::broadcast, DType::f32, 1 << 20), Algorithm::chain);
  EXPECT_EQ(choice(topology, "ring,broadcast=tree", OperationKind::broadcast, DType::f32, 1 << 20), Algorithm::tree);
  EXPECT_EQ(choice(topology, "ring", OperationKind::all_reduce, DType::f16, 1 << 20), Algorithm::direct);
  EXPECT_EQ(choice(hosts_of({0, 0}), "inline", OperationKind::all_reduce, DType::f32, 1 << 20), Algorithm::host_shared)
      << "what does not fit into an announcement uses the default algorithm";
}

TEST(Selector, UnknownNamesAreErrorsThatListWhatIsPossible) {
  const auto unknown = Selector::create(hosts_of({0, 0}), "rings");
  EXPECT_NE(unknown.status().message().find("'rings'"), std::string::npos) << unknown.status().message();
  EXPECT_NE(unknown.status().message().find("hierarchical"), std::string::npos);
  EXPECT_FALSE(Selector::create(hosts_of({0, 0}), "ring").ok()) << "no ring on one host";
  EXPECT_FALSE(Selector::create(hosts_of({0, 1}), "al_reduce=ring").ok());
}

TEST(Selector, TheTableNamesEveryOperation) {
  const std::string table = Selector::create(hosts_of({0, 0, 1}), "broadcast=tree")->table();
  for (const char* name :
       {"barrier", "all_reduce", "reduce_scatter", "all_to_all", "hierarchical", "tree (override)"}) {
    EXPECT_NE(table.find(name), std::string::npos) << name << "\n" << table;
  }
}

TEST(AlignedChunks, CoverEveryElementOnceAndBeginOnCacheLines) {
  for (const std::size_t count : {0, 1, 15, 16, 17, 100, 1000, 4097}) {
    for (const std::size_t chunks : {1, 2, 3, 5, 8}) {
      std::size_t next = 0;
      for (std::size_t index = 0; index < chunks; ++index) {
        const ElementRange chunk = aligned_chunk(count, chunks, index, 4);
        EXPECT_EQ(chunk.begin, next);
        EXPECT_TRUE(chunk.begin % 16 == 0 || chunk.begin == count);
        next = chunk.begin + chunk.count;
      }
      EXPECT_EQ(next, count);
    }
  }
}

}  // namespace
}  // namespace lockstep
