// Python reads our files, and we read what Python writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>

#include "checkpoint/testing/test_folder.h"
#include "ddp/snapshot/tensors.h"
#include "lockstep/checkpoint/snapshot.h"
#include "lockstep/ddp/weights.h"
#include "support/python.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::testing::python_with_torch;
using testing::TestFolder;

// As read_safetensors.py expects it; the names sorted as Python sorts them.
torch::nn::Sequential make_model() {
  torch::nn::Sequential model(torch::nn::Linear(3, 2), torch::nn::BatchNorm1d(2));
  at::NoGradGuard no_grad;
  double number = 0;
  for (const auto& [name, tensor] : tensors_of_model(*model)) {
    const at::Tensor values = torch::arange(tensor.numel(), torch::kDouble).reshape(tensor.sizes()) / 3 + number++;
    at::Tensor(tensor).copy_(values.to(tensor.scalar_type()));
  }
  return model;
}

TEST(SnapshotPython, ReadsOurFilesAndWeReadItsFiles) {
  if (python_with_torch().empty()) GTEST_SKIP() << "no Python with torch";
  const TestFolder folder;
  auto model = make_model();
  Snapshots(folder.path()).save({.model = *model});
  const std::string ours = folder.path("snapshot-000001-step-0/model.safetensors"), theirs = folder.path("python");
  const std::string command = python_with_torch() + " " READ_SAFETENSORS_SCRIPT " " + ours + " " + theirs;
  ASSERT_EQ(std::system(command.c_str()), 0);
  torch::nn::Sequential other(torch::nn::Linear(3, 2), torch::nn::BatchNorm1d(2));
  load_weights(*other, theirs);
  const NamedTensors before = tensors_of_model(*model), after = tensors_of_model(*other);
  for (const auto& [name, tensor] : before) EXPECT_TRUE(torch::equal(after.at(name), tensor + 1)) << name;
}

// Files that Python wrote into a folder.
class WeightsPython : public ::testing::Test {
 protected:
  void SetUp() override {
    if (python_with_torch().empty()) GTEST_SKIP() << "no Python with torch";
    ASSERT_EQ(run("write"), 0);
  }
  int run(const std::string& what) const {
    return std::system((python_with_torch() + " " WEIGHTS_SCRIPT " " + what + " " + folder_.path()).c_str());
  }
  std::string path(const std::string& name) const { return folder_.path(name); }
  static torch::nn::Sequential empty_model() {
    return torch::nn::Sequential(torch::nn::Linear(3, 2), torch::nn::BatchNorm1d(2));
  }
  // As weights.py's make_model().
  static at::Tensor expected(const at::Tensor& tensor) {
    return (torch::arange(tensor.numel(), torch::kDouble).reshape(tensor.sizes()) / 4 + tensor.numel())
        .to(tensor.scalar_type());
  }
  static void expect_loaded(const torch::nn::Module& model) {
    for (const auto& [name, tensor] : tensors_of_model(model)) {
      EXPECT_TRUE(torch::equal(tensor, expected(tensor))) << name << " is " << tensor;
    }
  }
  std::string error_of(const std::string& name, const LoadWeightsOptions& options = {}) const {
    auto model = empty_model();
    try {
      load_weights(*model, path(name), options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

 private:
  TestFolder folder_;
};

TEST_F(WeightsPython, EveryWayToSaveAStateDictIsRead) {
  for (const char* name : {"plain.pt", "protocol4.pt", "prefixed.pt", "model.safetensors.index.json"}) {
    SCOPED_TRACE(name);
    auto model = empty_model();
    const WeightsReport report = load_weights(*model, path(name));
    EXPECT_TRUE(report.complete()) << report.describe();
    EXPECT_EQ(report.loaded.size(), 7U);
    expect_loaded(*model);
  }
  auto model = empty_model();
  load_weights(*model, path("checkpoint.pt"), {.key = "model"});
  expect_loaded(*model);
}

TEST_F(WeightsPython, ViewsAndParametersAreRead) {
  auto model = empty_model();
  load_weights(*model, path("views.pt"));
  const auto tensors = tensors_of_model(*model);
  EXPECT_TRUE(torch::equal(tensors.at("0.weight"), torch::tensor({{1.F, 5.F, 9.F}, {2.F, 6.F, 10.F}})));
  EXPECT_TRUE(torch::equal(tensors.at("0.bias"), torch::tensor({8.F, 9.F})));
}

TEST_F(WeightsPython, AnotherTypeIsConvertedIfAsked) {
  EXPECT_THAT(error_of("bf16.pt"),
              ::testing::HasSubstr("0.weight: BFloat16 [2, 3] in the file, Float [2, 3] in the model"));
  auto model = empty_model();
  const WeightsReport report = load_weights(*model, path("bf16.pt"), {.convert = true});
  EXPECT_EQ(report.converted.size(), 6U);
  expect_loaded(*model);  // small multiples of 1/4, which bf16 has exactly
}

TEST_F(WeightsPython, FilesThatAreNotWeightsSayWhatTheyAre) {
  using ::testing::HasSubstr;
  EXPECT_THAT(error_of("module.pt"), HasSubstr("it contains a torch.nn.modules."));
  EXPECT_THAT(error_of("legacy.pt"), HasSubstr("PyTorch before 1.6"));
  EXPECT_THAT(error_of("script.pt"), HasSubstr("TorchScript archive"));
  EXPECT_THAT(error_of("checkpoint.pt"),
              HasSubstr("has no tensors, but \"model\" (a dictionary), \"epoch\" (a number)"));
  EXPECT_THAT(error_of("checkpoint.pt", {.key = "ema"}),
              HasSubstr("no dictionary \"ema\"; it has \"model\" (a dictionary)"));
  EXPECT_THAT(error_of("no such file.pt"), HasSubstr("no such file.pt"));
}

TEST_F(WeightsPython, PythonReadsWhatWeWrite) {
  auto model = empty_model();
  load_weights(*model, path("plain.pt"));
  {
    at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : tensors_of_model(*model)) at::Tensor(tensor).add_(1);
  }
  save_weights(*model, path("ours.pt"));
  save_weights(*model, path("ours.safetensors"));
  EXPECT_EQ(run("read"), 0);
  // And we do.
  for (const char* name : {"ours.pt", "ours.safetensors"}) {
    auto again = empty_model();
    load_weights(*again, path(name));
    for (const auto& [key, tensor] : tensors_of_model(*again))
      EXPECT_TRUE(torch::equal(tensor, expected(tensor) + 1)) << key;
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
