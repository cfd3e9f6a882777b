// Training that is stopped by kill -9 and resumed, in processes: the same losses and parameters, bit for bit, as if it
// had not been.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <map>
#include <sstream>

#include "checkpoint/hash.h"
#include "checkpoint/testing/test_folder.h"
#include "ddp/snapshot/tensors.h"
#include "lockstep/lockstep.h"
#include "support/process_set.h"

namespace lockstep::testing {
namespace {

using checkpoint::testing::TestFolder;
using ::testing::HasSubstr;

constexpr std::int64_t kSamples = 40;
constexpr std::size_t kBatch = 4;
constexpr std::int64_t kSteps = 14;
constexpr std::int64_t kSaveEvery = 3;

// Everything that a resume can get wrong: random numbers, buffers, Adam's moments and step, a changing learning rate,
// a shuffled epoch that is left in the middle.
torch::nn::Sequential make_model() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(5, 32), torch::nn::BatchNorm1d(32), torch::nn::Dropout(0.5),
                               torch::nn::Linear(32, 2));
}

std::pair<at::Tensor, at::Tensor> batch_of(const std::vector<std::size_t>& indices) {
  static const at::Tensor inputs = torch::sin(torch::arange(kSamples * 5.0)).reshape({kSamples, 5});
  static const at::Tensor targets = torch::cos(torch::arange(kSamples * 2.0)).reshape({kSamples, 2});
  const at::Tensor rows = torch::tensor(std::vector<std::int64_t>(indices.begin(), indices.end()));
  return {inputs.index_select(0, rows), targets.index_select(0, rows)};
}

// "0x1.8p+1": every bit.
std::string exactly(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%a", value);
  return text;
}

LOCKSTEP_PROCESS_ROLE(training_rank) {
  torch::set_num_threads(1);
  ProcessGroupScope job;
  const char* const folder = std::getenv("LOCKSTEP_TEST_FOLDER");
  torch::nn::Sequential model = make_model();
  DistributedDataParallel ddp(model);
  torch::optim::Adam optimizer(ddp->parameters(), torch::optim::AdamOptions(0.01));
  DistributedSampler sampler(kSamples, {.shuffle = true, .seed = 5});
  torch::manual_seed(static_cast<std::uint64_t>(100 + job.rank()));
  checkpoint::State state{.model = *model, .optimizer = optimizer};
  std::optional<checkpoint::Snapshots> snapshots;
  if (folder != nullptr)
    snapshots.emplace(folder, checkpoint::SnapshotOptions{.asynchronous = std::getenv("ASYNC") != nullptr});
  if (snapshots && snapshots->load(state)) {
    sampler.load_state(*state.sampler);
    print_mark("resumed after step " + std::to_string(state.step));
  }
  while (state.step < kSteps) {
    sampler.set_epoch(state.epoch);
    sampler.reset();
    while (const auto indices = state.step < kSteps ? sampler.next(kBatch) : torch::nullopt) {
      const auto [input, target] = batch_of(*indices);
      optimizer.zero_grad();
      at::Tensor loss = torch::mse_loss(ddp(input), target);
      loss.backward();
      optimizer.step();
      auto& options = optimizer.param_groups()[0].options();
      options.set_lr(options.get_lr() * 0.9);
      ++state.step;
      print_mark("step " + std::to_string(state.step) + " loss " + exactly(loss.item<double>()));
      state.sampler = sampler.state();
      if (snapshots && state.step % kSaveEvery == 0) snapshots->save(state);
    }
    ++state.epoch;
  }
  if (snapshots) snapshots->wait();
  for (const auto& entry : checkpoint::tensors_of_model(*model)) {
    const at::Tensor bytes = entry.second.detach().contiguous();
    const auto hash = checkpoint::hash_of({static_cast<const std::byte*>(bytes.data_ptr()), bytes.nbytes()});
    print_mark("final " + entry.first + " " + hash);
  }
  return 0;
}

// The lines about each step and tensor.
std::map<std::string, std::string> results(const std::string& output) {
  std::map<std::string, std::string> lines;
  std::istringstream stream(output);
  std::string kind, name;
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    if (words >> kind >> name && (kind == "step" || kind == "final")) lines[kind + " " + name] = line;
  }
  return lines;
}

ProcessSet start(const std::string& folder, bool asynchronous) {
  Environment environment;
  if (!folder.empty()) environment["LOCKSTEP_TEST_FOLDER"] = folder;
  if (asynchronous) environment["ASYNC"] = "1";
  return start_ranks(2, "training_rank", {.environment = environment});
}

class Resume : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Writing, Resume, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "asynchronous" : "synchronous"; });

TEST_P(Resume, GivesTheSameBitsAsARunThatWasNeverStopped) {
  ProcessSet undisturbed = start("", false);
  ASSERT_TRUE(undisturbed.wait_all(in_seconds(120))) << undisturbed.report();
  ASSERT_TRUE(undisturbed.all_succeeded()) << undisturbed.report();
  const TestFolder folder;
  for (const char* when : {"step 4 ", "step 8 "}) {
    ProcessSet killed = start(folder.path(), GetParam());
    ASSERT_TRUE(killed.wait_for_line(0, when, in_seconds(120))) << killed.report();
    for (const int rank : {0, 1}) killed.kill(rank, SIGKILL);
    ASSERT_TRUE(killed.wait_all(in_seconds(120)));
  }
  ProcessSet resumed = start(folder.path(), GetParam());
  ASSERT_TRUE(resumed.wait_all(in_seconds(120))) << resumed.report();
  ASSERT_TRUE(resumed.all_succeeded()) << resumed.report();
  EXPECT_THAT(resumed.output(0), HasSubstr("resumed after step "));
  for (const int rank : {0, 1}) {
    const auto expected = results(undisturbed.output(rank)), actual = results(resumed.output(rank));
    EXPECT_LT(actual.size(), expected.size()) << "it started over";
    EXPECT_GE(actual.size(), 8U);
    for (const auto& [name, line] : actual) EXPECT_EQ(line, expected.at(name)) << "rank " << rank;
  }
}

}  // namespace
}  // namespace lockstep::testing
