#include "lockstep/ddp/subgroups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ddp/testing/test_ranks.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::Group;
using ::testing::HasSubstr;
using testing::run_ranks;

std::string subgroup_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

at::Tensor filled(double value) { return torch::full({4}, value); }

double value_of(const at::Tensor& tensor) {
  EXPECT_TRUE(at::equal(tensor, tensor[0].expand_as(tensor))) << tensor;
  return tensor[0].item<double>();
}

Group odd_ranks(const Group& world) { return world->new_group(std::vector<int>{1, 3}, ""); }

TEST(NonMembers, HaveNoRankInTheGroupButCanListItsMembers) {
  run_ranks(4, [](const Group& world) {
    const Group odd = odd_ranks(world);
    ASSERT_NE(odd, nullptr);
    const bool member = world->rank() % 2 == 1;
    EXPECT_EQ(get_rank(odd), member ? world->rank() / 2 : -1);
    EXPECT_EQ(get_world_size(odd), member ? 2 : -1);
    EXPECT_EQ(get_backend(odd), world->backend());
    EXPECT_THAT(get_process_group_ranks(odd), ElementsAre(1, 3));
    EXPECT_EQ(get_global_rank(odd, 1), 3);
    EXPECT_EQ(get_group_rank(odd, 3), 1);
    EXPECT_TRUE(odd->health().ok());
    if (!member) {
      EXPECT_THAT(odd->describe(), HasSubstr("is not in the group of the ranks 1, 3"));
    }
  });
}

// Every collective on tensors of `value`; what they hold afterwards, put together.
at::Tensor every_collective(const Group& group, double value, int first, int last) {
  const TensorCallOptions on{.group = group};
  const int size = std::max(2, get_world_size(group));
  std::vector<at::Tensor> tensors;
  const auto make = [&](std::int64_t blocks = 1) { return tensors.emplace_back(torch::full({4 * blocks}, value)); };
  const auto make_list = [&] {
    std::vector<at::Tensor> list;
    for (int i = 0; i < size; ++i) list.push_back(make());
    return list;
  };
  all_reduce(make(), {.group = group});
  reduce(make(), first, {.group = group});
  broadcast(make(), last, on);
  all_gather(make_list(), filled(value), on);
  all_gather_into_tensor(make(size), filled(value), on);
  reduce_scatter(make(), make_list(), {.group = group});
  reduce_scatter_tensor(make(), torch::full({4 * size}, value), {.group = group});
  gather(filled(value), get_rank(group) == 1 ? make_list() : std::vector<at::Tensor>(), last, on);
  scatter(make(), get_rank(group) == 0 ? make_list() : std::vector<at::Tensor>(), first, on);
  all_to_all(make_list(), make_list(), on);
  all_to_all_single(make(size), torch::full({4 * size}, value), on);
  if (get_rank(group) != 1) send(filled(value), last, 5, on);
  if (get_rank(group) != 0) recv(make(), first, 5, on);
  barrier(on);
  monitored_barrier(std::chrono::seconds(60), group);
  const Work work = all_reduce_async(make(), {.group = group});
  work.wait();
  EXPECT_TRUE(work.is_completed());
  return at::cat(tensors);
}

TEST(NonMembers, CallCollectivesThatDoNothing) {
  run_ranks(4, [](const Group& world) {
    const Group odd = odd_ranks(world);
    const double value = world->rank() + 1;
    const at::Tensor after = every_collective(odd, value, 1, 3);
    if (odd->rank() < 0) {
      EXPECT_EQ(value_of(after), value);
    } else {
      EXPECT_EQ(after.min().item<double>(), 2) << "the smaller value of ranks 1 and 3";
      EXPECT_EQ(after.max().item<double>(), 6) << "the sum of both";
    }
    // Nothing of that has met what the whole world does.
    at::Tensor whole = filled(100);
    all_reduce(whole, {.group = world});
    EXPECT_EQ(value_of(whole), 400);
  });
}

TEST(NonMembers, AreWarnedOncePerOperation) {
  ::testing::internal::CaptureStderr();
  run_ranks(2, [](const Group& world) {
    const Group first = world->new_group(std::vector<int>{0}, "");
    for (int i = 0; i < 3; ++i) {
      all_reduce(filled(1), {.group = first});
      broadcast(filled(1), 0, {.group = first});
    }
  });
  const std::string written = testing::shared(::testing::internal::GetCapturedStderr(), 1);
  for (const char* operation : {"all_reduce", "broadcast"}) {
    const std::string line =
        std::string(operation) + " on rank 1 does nothing: rank 1 is not in the group of the ranks 0";
    const std::size_t at = written.find(line);
    ASSERT_NE(at, std::string::npos) << written;
    EXPECT_EQ(written.find(line, at + 1), std::string::npos) << written;
  }
}

TEST(NonMembers, CannotTrainOrSaveWithTheGroup) {
  run_ranks(2, [](const Group& world) {
    const Group group = world->new_group(std::vector<int>{0}, "leaders");
    if (group->rank() == 0) return;
    const auto clear = AllOf(HasSubstr("rank 1 is not in the group 'leaders' of the ranks 0"), HasSubstr("get_rank"));
    torch::nn::Linear model(3, 2);
    EXPECT_THAT(subgroup_error([&] { DistributedDataParallel(model, {.process_group = group}); }), clear);
    EXPECT_THAT(subgroup_error([&] { GradientSynchronizer({{"p", filled(1)}}, {}, {.process_group = group}); }), clear);
    EXPECT_THAT(subgroup_error([&] {
                  ZeroRedundancyOptimizer<torch::optim::SGD>(model->parameters(), torch::optim::SGDOptions(0.1),
                                                             {.group = group});
                }),
                clear);
    EXPECT_THAT(subgroup_error([&] { SyncBatchNorm(2, group)->forward(torch::ones({4, 2})); }), clear);
    EXPECT_THAT(subgroup_error([&] { convert_sync_batchnorm(model, group); }), clear);
    EXPECT_THAT(subgroup_error([&] { checkpoint::Snapshots("nowhere", {.group = group}); }), clear);
    EXPECT_THAT(subgroup_error([&] { post_local_sgd_hook({.subgroup = group}); }), clear);
    EXPECT_THAT(subgroup_error([&] { PeriodicModelAverager({.group = group}); }), clear);
    EXPECT_THAT(subgroup_error([&] { group->all_reduce(filled(1), {}); }), clear);
    EXPECT_THAT(subgroup_error([&] { group->companion("test"); }), clear);
    EXPECT_THAT(subgroup_error([&] { group->new_group(std::vector<int>{0}, ""); }), clear);
    EXPECT_THAT(subgroup_error([&] { split_group({{0}}, group); }), clear);
    EXPECT_THAT(subgroup_error([&] { group_or_default(group); }), clear);
  });
}

TEST(Subgroups, TakeRootsAsGlobalRanks) {
  run_ranks(4, [](const Group& world) {
    const Group odd = odd_ranks(world);
    const TensorCallOptions on{.group = odd};
    const double mine = world->rank();
    at::Tensor tensor = filled(mine);
    broadcast(tensor, 3, on);
    EXPECT_EQ(value_of(tensor), odd->rank() < 0 ? mine : 3);

    tensor = filled(mine);
    reduce(tensor, 1, {.group = odd});
    EXPECT_EQ(value_of(tensor), mine == 1 ? 4 : mine);

    std::vector<at::Tensor> parts{filled(-1), filled(-2)};
    gather(filled(mine), mine == 3 ? parts : std::vector<at::Tensor>(), 3, on);
    EXPECT_EQ(value_of(parts[0]), mine == 3 ? 1 : -1);
    EXPECT_EQ(value_of(parts[1]), mine == 3 ? 3 : -2);

    tensor = filled(mine);
    scatter(tensor, mine == 1 ? std::vector<at::Tensor>{filled(10), filled(30)} : std::vector<at::Tensor>(), 1, on);
    EXPECT_EQ(value_of(tensor), odd->rank() < 0 ? mine : 10 * mine);

    tensor = filled(mine);
    if (mine == 3) send(tensor, 1, 7, on);
    if (mine == 1) recv(tensor, 3, 7, on);
    EXPECT_EQ(value_of(tensor), mine == 1 ? 3 : mine);

    if (odd->rank() >= 0) {
      EXPECT_THAT(
          subgroup_error([&] { broadcast(tensor, 0, on); }),
          AllOf(HasSubstr("global rank 0 is not in the group"), HasSubstr("1, 3"), HasSubstr("get_global_rank")));
    }
    // The interface below counts the group's ranks.
    tensor = filled(mine);
    if (odd->rank() >= 0) odd->broadcast(tensor, 1, {}).wait();
    EXPECT_EQ(value_of(tensor), odd->rank() < 0 ? mine : 3);
  });
}

TEST(Subgroups, OfSubgroupsTranslateToGlobalRanks) {
  run_ranks(4, [](const Group& world) {
    EXPECT_THAT(get_process_group_ranks(world), ElementsAre(0, 1, 2, 3));
    EXPECT_EQ(get_global_rank(world, 2), 2);
    const Group three = world->new_group(std::vector<int>{3, 1, 0}, "");
    EXPECT_THAT(get_process_group_ranks(three), ElementsAre(3, 1, 0));
    EXPECT_THAT(subgroup_error([&] { get_group_rank(three, 2); }), HasSubstr("global rank 2 is not in the group"));
    EXPECT_THAT(subgroup_error([&] { get_global_rank(three, 3); }), HasSubstr("no rank 3"));
    EXPECT_THAT(subgroup_error([&] { get_global_rank(three, -1); }), HasSubstr("no rank -1"));
    if (three->rank() < 0) return;
    EXPECT_EQ(get_group_rank(three, world->rank()), three->rank());
    const Group pair = three->new_group(std::vector<int>{2, 0}, "");
    EXPECT_THAT(get_process_group_ranks(pair), ElementsAre(0, 3));
    EXPECT_THAT(get_process_group_ranks(three->companion("test")), ElementsAre(3, 1, 0));
    at::Tensor tensor = filled(world->rank());
    broadcast(tensor, 3, {.group = pair});
    EXPECT_EQ(value_of(tensor), world->rank() == 1 ? 1 : 3);
  });
}

TEST(Subgroups, DivideAGroupEvenly) {
  run_ranks(4, [](const Group& world) {
    const Subgroups halves = new_subgroups(2, world);
    ASSERT_EQ(halves.all.size(), 2U);
    EXPECT_THAT(get_process_group_ranks(halves.all[0]), ElementsAre(0, 1));
    EXPECT_THAT(get_process_group_ranks(halves.all[1]), ElementsAre(2, 3));
    EXPECT_EQ(halves.mine, halves.all[static_cast<std::size_t>(world->rank() / 2)]);
    at::Tensor tensor = filled(world->rank());
    for (const Group& half : halves.all) all_reduce(tensor, {.group = half});
    EXPECT_EQ(value_of(tensor), world->rank() < 2 ? 1 : 5);
    EXPECT_THAT(subgroup_error([&] { new_subgroups(3, world); }),
                HasSubstr("4 ranks cannot be divided into groups of 3"));
    EXPECT_THAT(subgroup_error([&] { new_subgroups(0, world); }), HasSubstr("at least 1"));
    EXPECT_THAT(subgroup_error([&] { new_subgroups(8, world); }), HasSubstr("groups of 8"));
  });
}

TEST(Subgroups, SplitAGroupInTheOrderOfTheLists) {
  run_ranks(4, [](const Group& world) {
    const Group part = split_group({{3, 0}, {1}}, world, "part");
    if (world->rank() == 2) {
      EXPECT_EQ(part->rank(), -1);
      EXPECT_THAT(part->describe(), HasSubstr("rank 2 is in none of the groups"));
    } else {
      EXPECT_EQ(part->rank(), world->rank() == 0 ? 1 : 0);
      EXPECT_EQ(part->size(), world->rank() == 1 ? 1 : 2);
    }
    at::Tensor tensor = filled(world->rank());
    all_reduce(tensor, {.group = part});
    EXPECT_EQ(value_of(tensor), world->rank() % 3 == 0 ? 3 : world->rank());
    if (world->rank() % 3 != 0) return;
    // Ranks of the parent, not global ranks: 0 is global rank 3.
    EXPECT_THAT(get_process_group_ranks(split_group({{0}, {1}}, part)), ElementsAre(world->rank()));
  });
}

TEST(Subgroups, RefuseInvalidListsOnEveryRank) {
  run_ranks(3, [](const Group& world) {
    const auto list = [&](std::vector<int> ranks) { return subgroup_error([&] { world->new_group(ranks, ""); }); };
    EXPECT_THAT(list({0, 0}), HasSubstr("new_group([0, 0]): rank 0 is in the list twice"));
    EXPECT_THAT(list({0, 3}), HasSubstr("new_group([0, 3]): there is no rank 3: the ranks are 0 to 2"));
    EXPECT_THAT(list({-1, 1}), HasSubstr("no rank -1"));
    const auto split = [&](const std::vector<std::vector<int>>& lists) {
      return subgroup_error([&] { split_group(lists, world); });
    };
    EXPECT_THAT(split({{0, 1}, {1, 2}}), HasSubstr("rank 1 is both in [0, 1] and in [1, 2]"));
    EXPECT_THAT(split({{0, 1}, {2, 2}}), HasSubstr("rank 2 is in [2, 2] twice"));
    EXPECT_THAT(split({{0}, {7}}), HasSubstr("no rank 7"));
    EXPECT_THAT(split({{0}, {}}), HasSubstr("empty"));
    EXPECT_THAT(split({}), HasSubstr("no list"));
    at::Tensor whole = filled(1);
    all_reduce(whole, {.group = world});
    EXPECT_EQ(value_of(whole), 3);
  });
}

}  // namespace
}  // namespace lockstep
