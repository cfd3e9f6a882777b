#include "lockstep/checkpoint/snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "checkpoint/snapshot_directory.h"
#include "checkpoint/snapshot_writer.h"
#include "checkpoint/testing/test_folder.h"
#include "ddp/elastic/running.h"
#include "ddp/snapshot/tensors.h"
#include "ddp/testing/error_of.h"
#include "ddp/testing/test_optimizers.h"
#include "ddp/testing/test_ranks.h"
#include "lockstep/ddp/zero_redundancy_optimizer.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::testing::error_of;
using lockstep::testing::errors_of_ranks;
using lockstep::testing::Group;
using lockstep::testing::run_ranks;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::set_content;
using testing::TestFolder;

// Made with its own values, whatever the generator is at.
torch::nn::Sequential make_model(double value, std::int64_t width = 6) {
  torch::nn::Sequential model(torch::nn::Linear(3, width), torch::nn::BatchNorm1d(width), torch::nn::Linear(width, 2));
  at::NoGradGuard no_grad;
  for (at::Tensor& parameter : model->parameters()) parameter.fill_(value);
  for (at::Tensor& buffer : model->buffers()) buffer.fill_(value);
  return model;
}

double value_of(const torch::nn::Sequential& model) {
  for (const at::Tensor& tensor : model->parameters()) {
    EXPECT_EQ(tensor.min().item<double>(), tensor.max().item<double>());
    EXPECT_EQ(tensor.min().item<double>(), model->parameters()[0].min().item<double>());
  }
  return model->parameters()[0].min().item<double>();
}

// One folder for all ranks, whether they are threads or processes. Used outside of the ranks.
class SharedFolder {
 public:
  ~SharedFolder() { lockstep::testing::wait_for_all_processes(); }  // no process uses it any more
  const std::string& path() const { return path_; }

 private:
  const TestFolder own_;
  const std::string path_ = lockstep::testing::shared(own_.path(), 0);
};

TEST(Snapshots, RestoreEverything) {
  const TestFolder folder;
  auto model = make_model(2);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(0.1));
  model->forward(torch::ones({4, 3})).sum().backward();
  optimizer.step();
  const at::Tensor table = torch::arange(6).reshape({2, 3}).t();
  State state{.model = *model,
              .optimizer = optimizer,
              .step = 70,
              .epoch = 3,
              .sampler = DistributedSamplerState{3, 9, 1000, 128, true},
              .values = {{"best", 0.25}, {"count", 7}, {"name", "run\xff"}, {"table", table}}};
  torch::manual_seed(1);
  Snapshots snapshots(folder.path());
  snapshots.save(state);
  const at::Tensor numbers = torch::rand({4});

  auto other = make_model(0);
  torch::optim::Adam other_optimizer(other->parameters(), torch::optim::AdamOptions(0.5));
  State loaded{.model = *other, .optimizer = other_optimizer, .values = {{"old", 1}}};
  const auto result = Snapshots(folder.path()).load(loaded);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->path, folder.path("snapshot-000001-step-70"));
  EXPECT_EQ(result->world_size, 1);
  EXPECT_TRUE(torch::equal(torch::rand({4}), numbers));
  EXPECT_EQ(loaded.step, 70);
  EXPECT_EQ(loaded.epoch, 3);
  EXPECT_EQ(loaded.sampler, state.sampler);
  EXPECT_EQ(loaded.values.size(), 4U);
  EXPECT_EQ(std::get<double>(loaded.values.at("best")), 0.25);
  EXPECT_EQ(std::get<std::int64_t>(loaded.values.at("count")), 7);
  EXPECT_EQ(std::get<std::string>(loaded.values.at("name")), "run\xff");
  EXPECT_TRUE(torch::equal(std::get<at::Tensor>(loaded.values.at("table")), table));
  for (std::size_t i = 0; i < model->parameters().size(); ++i) {
    EXPECT_TRUE(torch::equal(other->parameters()[i], model->parameters()[i]));
  }
  for (std::size_t i = 0; i < model->buffers().size(); ++i) {
    EXPECT_TRUE(torch::equal(other->buffers()[i], model->buffers()[i]));
  }
  EXPECT_EQ(other_optimizer.param_groups()[0].options().get_lr(), 0.1);
  EXPECT_EQ(other_optimizer.state().size(), optimizer.state().size());
}

struct OddImpl : torch::nn::Module {
  OddImpl() {
    register_parameter("transposed", torch::arange(6.0).reshape({2, 3}).t());
    register_parameter("undefined", at::Tensor(), false);
    register_buffer("flag", torch::tensor({true, false, true}));
    register_buffer("half", torch::tensor({1.5, -2.0}).to(torch::kHalf));
    register_buffer("brain", torch::tensor({1.5, -2.0}).to(torch::kBFloat16));
    register_buffer("bytes", torch::tensor({1, 255}, torch::kByte));
    register_buffer("count", torch::tensor(41));
    register_buffer("empty", torch::empty({0, 4}));
    register_buffer("complex", torch::complex(torch::ones({2}), torch::zeros({2})));
    register_buffer("nan", torch::tensor({std::nan(""), -0.0}, torch::kDouble));
  }
};

TEST(Snapshots, RestoreTensorsOfAllKindsBitForBit) {
  const TestFolder folder;
  OddImpl model, other;
  Snapshots snapshots(folder.path());
  State state{.model = model};
  snapshots.save(state);
  {
    at::NoGradGuard no_grad;
    for (auto& parameter : other.parameters()) parameter.zero_();
    for (auto& buffer : other.buffers()) buffer.zero_();
  }
  State loaded{.model = other};
  ASSERT_TRUE(snapshots.load(loaded).has_value());
  EXPECT_TRUE(torch::equal(other.named_parameters()["transposed"], model.named_parameters()["transposed"]));
  for (const auto& entry : model.named_buffers()) {
    const at::Tensor buffer = other.named_buffers()[entry.key()];
    ASSERT_EQ(buffer.nbytes(), entry.value().nbytes()) << entry.key();
    if (buffer.nbytes() == 0) continue;  // memcmp takes no null pointers, not even for nothing
    EXPECT_EQ(std::memcmp(buffer.data_ptr(), entry.value().data_ptr(), buffer.nbytes()), 0) << entry.key();
  }
}

TEST(Snapshots, NoSnapshotYetIsNotAnError) {
  const TestFolder folder;
  auto model = make_model(1);
  State state{.model = *model, .step = 5};
  EXPECT_FALSE(Snapshots(folder.path("new")).load(state).has_value());
  EXPECT_EQ(state.step, 5);
}

TEST(Snapshots, AnotherModelIsNamedParameterByParameter) {
  const TestFolder folder;
  auto model = make_model(1);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1));
  Snapshots snapshots(folder.path());
  snapshots.save({.model = *model, .optimizer = optimizer, .step = 1});
  auto wider = make_model(3, 7);
  torch::optim::SGD wider_optimizer(wider->parameters(), torch::optim::SGDOptions(0.2));
  State state{.model = *wider, .optimizer = wider_optimizer};
  EXPECT_THAT(error_of([&] { snapshots.load(state); }),
              AllOf(HasSubstr("model.safetensors is of another model"),
                    HasSubstr("\"0.weight\" is Float [6, 3] there and Float [7, 3] in the model")));
  EXPECT_EQ(value_of(wider), 3);
  EXPECT_EQ(wider_optimizer.param_groups()[0].options().get_lr(), 0.2);
  EXPECT_EQ(state.step, 0);
  torch::nn::Sequential shorter(torch::nn::Linear(3, 6));
  shorter->push_back("extra", torch::nn::Linear(1, 1));
  State short_state{.model = *shorter};
  EXPECT_THAT(error_of([&] { snapshots.load(short_state); }),
              AllOf(HasSubstr("\"extra.weight\" (Float [1, 1] in the model) is missing there"),
                    HasSubstr("\"1.running_mean\" (Float [6]) is not in the model")));
  model->to(torch::kDouble);
  State double_state{.model = *model};
  EXPECT_THAT(error_of([&] { snapshots.load(double_state); }), HasSubstr("is Float [6, 3] there and Double [6, 3]"));
}

TEST(Snapshots, AnotherOptimizerIsNamed) {
  const TestFolder folder;
  auto model = make_model(1);
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.1));
  torch::optim::Adam adam(model->parameters());
  torch::optim::SGD part(std::vector<at::Tensor>{model->parameters()[0]}, torch::optim::SGDOptions(0.1));
  Snapshots snapshots(folder.path());
  snapshots.save({.model = *model, .optimizer = sgd});
  State with_adam{.model = *model, .optimizer = adam}, with_part{.model = *model, .optimizer = part};
  EXPECT_THAT(error_of([&] { snapshots.load(with_adam); }),
              AllOf(HasSubstr("the state of a torch::optim::SGD"), HasSubstr("is a torch::optim::Adam")));
  EXPECT_THAT(error_of([&] { snapshots.load(with_part); }), AllOf(HasSubstr("[6] parameters"), HasSubstr("[1]")));
  snapshots.save({.model = *model});
  EXPECT_THAT(error_of([&] { snapshots.load(with_adam); }), HasSubstr("holds no optimizer's state"));
  State model_only{.model = *model};
  EXPECT_TRUE(snapshots.load(model_only).has_value());
}

TEST(Snapshots, TheNewestValidOneIsLoadedAndSkippedOnesAreNamed) {
  const TestFolder folder;
  Snapshots snapshots(folder.path());
  for (int step = 1; step <= 3; ++step) snapshots.save({.model = *make_model(step), .step = step});
  set_content(folder.path("snapshot-000003-step-3/model.safetensors"), "damaged");
  auto model = make_model(0);
  State state{.model = *model};
  const auto loaded = snapshots.load(state);
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(value_of(model), 2);
  ASSERT_EQ(loaded->skipped_snapshots.size(), 1U);
  EXPECT_THAT(loaded->skipped_snapshots[0].reason, HasSubstr("snapshot-000003-step-3/model.safetensors has 7 bytes"));
  snapshots.load_from(folder.path("snapshot-000001-step-1"), state);
  EXPECT_EQ(value_of(model), 1);
  for (int step = 1; step <= 2; ++step) {
    set_content(
        folder.path("snapshot-00000" + std::to_string(step) + "-step-" + std::to_string(step)) + "/snapshot.json", "");
  }
  EXPECT_THAT(error_of([&] { snapshots.load(state); }), HasSubstr("none of the 3 snapshots"));
  EXPECT_EQ(value_of(model), 1);
}

TEST(Snapshots, AsynchronouslyTheStateMayChangeAtOnce) {
  const TestFolder folder;
  auto model = make_model(1, 4000);
  Snapshots snapshots(folder.path(), {.keep_last = 10, .asynchronous = true});
  for (int step = 1; step <= 4; ++step) {
    at::Tensor own = torch::full({100'000}, step);
    snapshots.save({.model = *model, .step = step, .values = {{"own", own}}});
    at::NoGradGuard no_grad;
    own.fill_(-1);
    for (at::Tensor& parameter : model->parameters()) parameter.fill_(step + 1);
  }
  snapshots.wait();
  State state{.model = *model};
  for (int step = 1; step <= 4; ++step) {
    snapshots.load_from(folder.path("snapshot-00000" + std::to_string(step) + "-step-" + std::to_string(step)), state);
    EXPECT_EQ(value_of(model), step);
    EXPECT_TRUE(std::get<at::Tensor>(state.values.at("own")).eq(step).all().item<bool>());
  }
}

TEST(Snapshots, AsynchronousErrorsSurfaceAtTheNextCallOnce) {
  const TestFolder folder;
  set_content(folder.path("file"), "in the way");
  auto model = make_model(1);
  Snapshots snapshots(folder.path("file"), {.asynchronous = true});
  snapshots.save({.model = *model, .step = 8});
  EXPECT_THAT(error_of([&] { snapshots.save({.model = *model, .step = 9}); }),
              AllOf(HasSubstr("the snapshot of step 8"), HasSubstr("is a file, not a folder")));
  snapshots.save({.model = *model, .step = 10});
  EXPECT_THAT(error_of([&] { snapshots.wait(); }), HasSubstr("the snapshot of step 10"));
  snapshots.wait();
}

TEST(Snapshots, RefusesWhatCannotBeSaved) {
  const TestFolder folder;
  auto model = make_model(1);
  Snapshots snapshots(folder.path());
  EXPECT_THAT(error_of([&] { Snapshots("x", {.keep_last = 0}); }), HasSubstr("keep_last is 0"));
  EXPECT_THAT(error_of([&] {
                snapshots.save({.model = *model, .values = {{"s", torch::eye(3).to_sparse()}}});
              }),
              AllOf(HasSubstr("\"s\""), HasSubstr("not dense")));
  EXPECT_THAT(error_of([&] {
                snapshots.save({.model = *model, .values = {{"u", at::Tensor()}}});
              }),
              HasSubstr("undefined"));
  EXPECT_TRUE(folder.names().empty());
}

// As Lockstep 0.1 wrote them.
TEST(Snapshots, OfATorchArchiveOnlyTheModelIsLoaded) {
  const TestFolder folder;
  auto model = make_model(3);
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.1));
  const TensorFile file = TensorFile::of(tensors_of_model(*model), false);
  const std::string archive = "an archive";
  const std::vector<OutputFile> files = {file.output("model.safetensors"),
                                         {"optimizer.pt", {testing::bytes_of(archive)}}};
  ASSERT_TRUE(
      write_snapshot(folder.path(), {.step = 7, .optimizer = OptimizerRecord{"torch::optim::SGD", {6}}}, files).ok());
  auto other = make_model(0);
  torch::optim::SGD other_sgd(other->parameters(), torch::optim::SGDOptions(0.2));
  State with_optimizer{.model = *other, .optimizer = other_sgd};
  EXPECT_THAT(error_of([&] { Snapshots(folder.path()).load(with_optimizer); }),
              AllOf(HasSubstr("was written by Lockstep "), HasSubstr("torch archive"),
                    HasSubstr("leave State::optimizer empty")));
  EXPECT_EQ(value_of(other), 0);
  State model_only{.model = *other};
  ASSERT_TRUE(Snapshots(folder.path()).load(model_only).has_value());
  EXPECT_EQ(value_of(other), 3);
  EXPECT_EQ(model_only.step, 7);
}

TEST(Snapshots, AProcessOfAnOlderGenerationCannotSave) {
  const TestFolder folder;
  auto model = make_model(1);
  const auto save_in = [&](std::int64_t generation, std::int64_t step) {
    detail::set_present_generation({.job = "job", .number = generation});
    const std::string error = error_of([&] { Snapshots(folder.path()).save({.model = *model, .step = step}); });
    detail::set_present_generation({});
    return error;
  };
  EXPECT_EQ(save_in(2, 10), "(no error)");
  EXPECT_THAT(save_in(1, 11), AllOf(HasSubstr("the snapshot of step 11"), HasSubstr("generation 2"),
                                    HasSubstr("the job continues without it")));
  EXPECT_THAT(folder.names(), ::testing::ElementsAre("snapshot-000001-step-10"));
  const auto newest = read_newest_snapshot(folder.path());
  EXPECT_EQ(newest.value().snapshot->manifest.job, "job");
  EXPECT_EQ(newest.value().snapshot->manifest.generation, 2);
}

TEST(Snapshots, AsynchronouslyTheOptimizersStateMayChangeAtOnce) {
  for (const lockstep::testing::TestOptimizer& kind : lockstep::testing::optimizer_kinds()) {
    const TestFolder folder;
    auto model = make_model(1);
    const auto optimizer = kind.make(model->parameters());
    const auto step = [](torch::nn::Sequential& of, torch::optim::Optimizer& with) {
      with.step([&] {
        at::AutoGradMode with_gradients(true);
        with.zero_grad();
        at::Tensor loss = torch::zeros({});
        for (const at::Tensor& parameter : of->parameters()) loss = loss + (parameter - 0.3).pow(4).sum();
        loss.backward();
        return loss;
      });
    };
    Snapshots snapshots(folder.path(), {.keep_last = 9, .asynchronous = true});
    std::vector<std::vector<at::Tensor>> after;
    for (int round = 1; round <= 3; ++round) {  // later rounds reuse memory
      step(model, *optimizer);
      snapshots.save({.model = *model, .optimizer = *optimizer, .step = round});
      step(model, *optimizer);
      after.emplace_back();
      for (const at::Tensor& parameter : model->parameters()) after.back().push_back(parameter.detach().clone());
    }
    snapshots.wait();
    for (int round = 1; round <= 3; ++round) {
      auto other = make_model(0);
      const auto fresh = kind.make(other->parameters());
      State state{.model = *other, .optimizer = *fresh};
      snapshots.load_from(folder.path("snapshot-00000" + std::to_string(round) + "-step-" + std::to_string(round)),
                          state);
      step(other, *fresh);
      for (std::size_t i = 0; i < other->parameters().size(); ++i) {
        EXPECT_TRUE(torch::equal(other->parameters()[i], after[static_cast<std::size_t>(round) - 1][i]))
            << kind.name << " " << round << " " << i;
      }
    }
  }
}

TEST(SnapshotRanks, RankZeroWritesAndAllLoad) {
  const SharedFolder folder;
  run_ranks(3, [&](const Group& group) {
    Snapshots snapshots(folder.path(), {.asynchronous = true, .group = group});
    auto model = make_model(1 + group->rank());
    snapshots.save({.model = *model, .step = 4, .values = {{"rank", group->rank()}}});
    snapshots.wait();
    auto other = make_model(0);
    State state{.model = *other};
    const auto loaded = snapshots.load(state);
    EXPECT_EQ(value_of(other), 1);
    EXPECT_EQ(loaded->world_size, 3);
    EXPECT_EQ(state.step, 4);
    EXPECT_EQ(std::get<std::int64_t>(state.values.at("rank")), 0);
  });
  EXPECT_EQ(TestFolder::names_in(folder.path()).size(), 1U);
  // Another number of ranks, and one process by itself.
  run_ranks(2, [&](const Group& group) {
    auto other = make_model(0);
    State state{.model = *other};
    EXPECT_EQ(Snapshots(folder.path(), {.group = group}).load(state)->world_size, 3);
    EXPECT_EQ(value_of(other), 1);
  });
  auto other = make_model(0);
  State state{.model = *other};
  EXPECT_TRUE(Snapshots(folder.path(), {.alone = true}).load(state).has_value());
}

TEST(SnapshotRanks, AnErrorOnRankZeroIsThrownOnAllRanks) {
  const TestFolder folder;
  set_content(folder.path("file"), "in the way");
  for (const bool asynchronous : {false, true}) {
    const auto errors = errors_of_ranks(3, [&](const Group& group) {
      Snapshots snapshots(folder.path("file"), {.asynchronous = asynchronous, .group = group});
      snapshots.save({.model = *make_model(1), .step = 6});
      snapshots.wait();
    });
    EXPECT_THAT(errors,
                ::testing::Each(AllOf(HasSubstr("the snapshot of step 6"), HasSubstr("is a file, not a folder"))));
    EXPECT_THAT(errors[2], HasSubstr("on rank 0: "));
  }
}

TEST(SnapshotRanks, OneRankWithADifferentModelStopsAllAndChangesNone) {
  const TestFolder folder;
  Snapshots(folder.path()).save({.model = *make_model(1), .step = 2});
  run_ranks(3, [&](const Group& group) {
    auto model = make_model(9, group->rank() == 1 ? 5 : 6);
    State state{.model = *model};
    Snapshots snapshots(folder.path(), {.group = group});
    EXPECT_THAT(error_of([&] { snapshots.load(state); }),
                AllOf(HasSubstr("of another model"), HasSubstr(group->rank() == 1 ? "" : "on rank 1: ")));
    EXPECT_EQ(value_of(model), 9);
    EXPECT_EQ(state.step, 0);
    snapshots.wait();  // the group is still usable
  });
}

TEST(SnapshotRanks, AShardedOptimizersStateIsWhole) {
  const SharedFolder folder;
  const auto train = [](torch::nn::Sequential& model, torch::optim::Optimizer& optimizer, int steps) {
    for (int step = 0; step < steps; ++step) {
      optimizer.zero_grad();
      model->forward(torch::arange(12.0).reshape({4, 3})).pow(2).sum().backward();
      optimizer.step();
    }
  };
  std::vector<at::Tensor> expected;
  run_ranks(2, [&](const Group& group) {
    auto model = make_model(0.5);
    ZeroRedundancyOptimizer<torch::optim::AdamW> optimizer(model->parameters(), {0.01}, {.group = group});
    train(model, optimizer, 2);
    optimizer.param_groups()[0].options().set_lr(0.002);
    Snapshots snapshots(folder.path(), {.group = group});
    State state{.model = *model, .optimizer = optimizer};
    snapshots.save(state);
    train(model, optimizer, 2);
    if (group->rank() == 0) expected = model->parameters();
    // Back, and the same again.
    snapshots.load(state);
    EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.002);
    train(model, optimizer, 2);
  });
  expected = lockstep::testing::shared(expected, 0);
  auto model = make_model(0);
  torch::optim::AdamW plain(model->parameters(), torch::optim::AdamWOptions(0.5));
  State state{.model = *model, .optimizer = plain};
  ASSERT_TRUE(Snapshots(folder.path()).load(state).has_value());
  train(model, plain, 2);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(torch::equal(model->parameters()[i], expected[i])) << i;
}

TEST(Import, TorchArchivesFillAModelThatFits) {
  const TestFolder folder;
  auto model = make_model(4);
  torch::save(model, folder.path("model.pt"));
  auto other = make_model(0);
  import_torch_archive(folder.path("model.pt"), *other);
  EXPECT_EQ(value_of(other), 4);
  EXPECT_EQ(other->named_buffers()["1.running_mean"][0].item<double>(), 4);
  auto wider = make_model(3, 7);
  EXPECT_THAT(
      error_of([&] { import_torch_archive(folder.path("model.pt"), *wider); }),
      AllOf(HasSubstr("model.pt is of another model"), HasSubstr("\"0.bias\" is Float [6] there and Float [7]")));
  EXPECT_EQ(value_of(wider), 3);
  set_content(folder.path("bad.pt"), "not an archive");
  EXPECT_THAT(error_of([&] { import_torch_archive(folder.path("bad.pt"), *other); }), HasSubstr("not an archive"));
  EXPECT_THAT(error_of([&] { import_torch_archive(folder.path("none.pt"), *other); }), HasSubstr("does not exist"));
}

}  // namespace
}  // namespace lockstep::checkpoint
