// Python reads our files, and we read what Python writes.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>

#include "checkpoint/testing/test_folder.h"
#include "ddp/snapshot/tensors.h"
#include "lockstep/checkpoint/snapshot.h"
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
  import_safetensors(theirs, *other);
  const NamedTensors before = tensors_of_model(*model), after = tensors_of_model(*other);
  for (const auto& [name, tensor] : before) EXPECT_TRUE(torch::equal(after.at(name), tensor + 1)) << name;
}

}  // namespace
}  // namespace lockstep::checkpoint
