// The same training in PyTorch's DDP over Gloo and in ours: an MLP, a convolutional network with batch norm and a
// GPT, with SGD, Adam and AdamW, from the same parameters on the same data. torch_compare.py is the other side.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "bench/ddp/models.h"
#include "lockstep/lockstep.h"
#include "support/process_set.h"
#include "support/python.h"
#include "support/reserved_port.h"

namespace lockstep::testing {
namespace {

constexpr int kSteps = 8;
constexpr std::int64_t kBatch = 6;
const std::vector<std::string> kModels = {"small_mlp", "cnn", "small_gpt"};
const std::vector<std::string> kOptimizers = {"sgd", "adam", "adamw"};

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& name,
                                                        std::vector<torch::Tensor> parameters) {
  if (name == "sgd") {
    return std::make_unique<torch::optim::SGD>(std::move(parameters), torch::optim::SGDOptions(0.05).momentum(0.9));
  }
  if (name == "adam")
    return std::make_unique<torch::optim::Adam>(std::move(parameters), torch::optim::AdamOptions(1e-3));
  return std::make_unique<torch::optim::AdamW>(std::move(parameters),
                                               torch::optim::AdamWOptions(1e-3).weight_decay(0.1));
}

void append(std::ofstream& file, const torch::Tensor& values) {
  const torch::Tensor flat = values.detach().to(torch::kFloat).flatten().contiguous();
  file.write(static_cast<const char*>(flat.data_ptr()), static_cast<std::streamsize>(flat.nbytes()));
}

// The batch of a step: one rank's, or all ranks' together.
std::pair<torch::Tensor, torch::Tensor> batch(const bench::Task& task, int step, int first_rank, int last_rank) {
  std::vector<torch::Tensor> inputs, targets;
  for (int rank = first_rank; rank <= last_rank; ++rank) {
    const auto [input, target] = task.data(kBatch, static_cast<std::uint64_t>(1000 * step + 10 * rank));
    inputs.push_back(input);
    targets.push_back(target);
  }
  return {torch::cat(inputs), torch::cat(targets)};
}

// Losses of each step (the mean over ranks), then all parameters.
void train(const std::string& case_file, const std::string& model, const std::string& optimizer_name) {
  const int rank = get_rank(), world = get_world_size();
  torch::manual_seed(7);
  bench::Task task = bench::make_task(model);
  if (rank == 0) {
    std::ofstream initial(case_file + ".initial", std::ios::binary);
    for (const auto& parameter : task.module->parameters()) append(initial, parameter);
  }
  GradientSynchronizer sync(*task.module);
  auto optimizer = make_optimizer(optimizer_name, task.module->parameters());
  std::vector<float> losses;
  for (int step = 0; step < kSteps; ++step) {
    const auto [input, target] = batch(task, step, rank, rank);
    optimizer->zero_grad();
    sync.before_forward();
    const torch::Tensor output = task.forward(input);
    sync.after_forward({output});
    torch::Tensor loss = task.loss(output, target);
    loss.backward();
    optimizer->step();
    loss = loss.detach().clone();
    all_reduce(loss, {.op = ReduceOp::avg});
    losses.push_back(loss.item<float>());
  }
  sync.verify_in_sync();
  if (rank != 0) return;
  std::ofstream result(case_file + ".lockstep", std::ios::binary);
  append(result, torch::tensor(losses));
  for (const auto& parameter : task.module->parameters()) append(result, parameter);

  // One process on the whole batch. (Batch norm sees other statistics then.)
  torch::manual_seed(7);
  bench::Task alone = bench::make_task(model);
  auto optimizer_alone = make_optimizer(optimizer_name, alone.module->parameters());
  std::ofstream whole(case_file + ".alone", std::ios::binary);
  losses.clear();
  for (int step = 0; step < kSteps; ++step) {
    const auto [input, target] = batch(alone, step, 0, world - 1);
    optimizer_alone->zero_grad();
    const torch::Tensor loss = alone.loss(alone.forward(input), target);
    loss.backward();
    optimizer_alone->step();
    losses.push_back(loss.item<float>());
  }
  append(whole, torch::tensor(losses));
  for (const auto& parameter : alone.module->parameters()) append(whole, parameter);
}

LOCKSTEP_PROCESS_ROLE(compare_rank) {
  torch::set_num_threads(1);
  ProcessGroupScope job;
  const std::string folder = std::getenv("COMPARE_FOLDER");
  for (const std::string& model : kModels) {
    for (const std::string& optimizer : kOptimizers) train(folder + "/" + model + "_" + optimizer, model, optimizer);
  }
  return 0;
}

std::vector<float> read_floats(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<float> values(std::filesystem::exists(path) ? std::filesystem::file_size(path) / sizeof(float) : 0);
  file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
  return values;
}

// Why these tolerances: the sides add the ranks' gradients in different orders (Gloo around its ring, we in rank order;
// one process inside of its matrix products), so single gradients differ by a few units in the last place, 1e-7 of
// their size. SGD passes that on; over eight steps the losses, of size 1, stay within 1e-5. Adam divides each gradient
// by its own running size: where the true gradient is zero (the bias of a convolution before batch norm), rounding
// errors become whole steps of 1e-3 in either direction, eight times, on both sides. Only single parameters can do so:
// the mean difference over all of them stays tiny.
void expect_same(const std::string& a, const std::string& b, bool adaptive) {
  const std::vector<float> first = read_floats(a), second = read_floats(b);
  ASSERT_EQ(first.size(), second.size()) << a << ", " << b;
  ASSERT_GT(first.size(), static_cast<std::size_t>(kSteps));
  double largest = 0, sum = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const double difference = std::abs(first[i] - second[i]);
    if (i < kSteps) {
      EXPECT_LT(difference, 1e-5 * std::max(1.0F, first[i])) << a << ": loss of step " << i;
    } else {
      largest = std::max(largest, difference);
      sum += difference;
    }
  }
  EXPECT_LT(largest, adaptive ? 2 * kSteps * 1e-3 : 1e-5) << a << " against " << b;
  EXPECT_LT(sum / static_cast<double>(first.size()), adaptive ? 2e-6 : 5e-7) << a << " against " << b;
}

class AgainstPyTorch : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("lockstep_compare_" + std::to_string(::getpid()) + "_" + std::to_string(GetParam()));
    std::filesystem::create_directories(folder_);
    ProcessSet ranks = start_ranks(GetParam(), "compare_rank", {.environment = {{"COMPARE_FOLDER", folder_.string()}}});
    ASSERT_TRUE(ranks.wait_all(in_seconds(120))) << ranks.report();
    ASSERT_TRUE(ranks.all_succeeded()) << ranks.report();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& model, const std::string& optimizer, const std::string& end) const {
    return (folder_ / (model + "_" + optimizer + end)).string();
  }

  std::filesystem::path folder_;
};
INSTANTIATE_TEST_SUITE_P(Ranks, AgainstPyTorch, ::testing::Values(2, 3));

TEST_P(AgainstPyTorch, LossesAndParametersAgree) {
  if (python_with_torch().empty()) GTEST_SKIP() << kNoPythonTorch;
  // PyTorch's rank 0 opens the port by itself.
  const std::string port = std::to_string(ReservedPort().port());
  ProcessSet python = start_program(GetParam(), {python_with_torch(), TORCH_COMPARE_SCRIPT, folder_.string()},
                                    {.environment = {{"TORCH_MODELS_FOLDER", TORCH_MODELS_FOLDER},
                                                     {"PYTHONDONTWRITEBYTECODE", "1"},
                                                     {"OMP_NUM_THREADS", "1"}},
                                     .rank_variables = [&port](int) {
                                       return Environment{{"MASTER_PORT", port}};
                                     }});
  ASSERT_TRUE(python.wait_all(in_seconds(200))) << python.report();
  ASSERT_TRUE(python.all_succeeded()) << python.report();
  for (const std::string& model : kModels) {
    for (const std::string& optimizer : kOptimizers) {
      expect_same(file(model, optimizer, ".lockstep"), file(model, optimizer, ".torch"), optimizer != "sgd");
    }
  }
}

TEST_P(AgainstPyTorch, SeveralRanksAgreeWithOneProcess) {
  for (const std::string model : {"small_mlp", "small_gpt"}) {
    for (const std::string& optimizer : kOptimizers) {
      expect_same(file(model, optimizer, ".lockstep"), file(model, optimizer, ".alone"), optimizer != "sgd");
    }
  }
}

}  // namespace
}  // namespace lockstep::testing
