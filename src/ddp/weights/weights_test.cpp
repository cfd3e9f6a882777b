#include "lockstep/ddp/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>

#include "checkpoint/testing/test_folder.h"
#include "lockstep/checkpoint/snapshot.h"

namespace lockstep {
namespace {

using checkpoint::testing::TestFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

torch::nn::Linear linear_of(double value, std::int64_t inputs = 3, std::int64_t outputs = 2) {
  torch::nn::Linear model(inputs, outputs);
  at::NoGradGuard no_grad;
  for (at::Tensor& parameter : model->parameters()) parameter.fill_(value);
  return model;
}

std::string weights_error_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Weights, GoBothWaysInBothFormats) {
  const TestFolder folder;
  for (const char* name : {"w.safetensors", "w.pt", "w.pth", "w.bin"}) {
    save_weights(*linear_of(3), folder.path(name));
    auto model = linear_of(0);
    const WeightsReport report = load_weights(*model, folder.path(name));
    EXPECT_THAT(report.loaded, ElementsAre("bias", "weight"));
    EXPECT_EQ(report.describe(), "2 tensors loaded");
    EXPECT_EQ(model->weight.min().item<float>(), 3) << name;
  }
  // Nothing else is left there.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 4);
}

TEST(Weights, OfASnapshotAreRead) {
  const TestFolder folder;
  checkpoint::Snapshots(folder.path()).save({.model = *linear_of(4)});
  auto model = linear_of(0);
  load_weights(*model, folder.path("snapshot-000001-step-0/model.safetensors"));
  EXPECT_EQ(model->bias.min().item<float>(), 4);
}

TEST(Weights, ThatDoNotFitChangeNothingAndSayWhy) {
  const TestFolder folder;
  torch::nn::Sequential both(linear_of(1), linear_of(2));
  save_weights(*both, folder.path("both.pt"));
  torch::nn::Sequential other(linear_of(0), linear_of(0, 5), linear_of(0));
  EXPECT_THAT(weights_error_of([&] { load_weights(*other, folder.path("both.pt")); }),
              AllOf(HasSubstr("both.pt does not fit the model, and nothing was loaded; "),
                    HasSubstr("missing in the file: 2.bias, 2.weight"),
                    HasSubstr("different: 1.weight: Float [2, 3] in the file, Float [2, 5] in the model"),
                    HasSubstr("3 tensors that fit would be loaded")));
  for (const at::Tensor& parameter : other->parameters()) EXPECT_EQ(parameter.abs().max().item<float>(), 0);
}

TEST(Weights, ThatFitAreLoadedIfNotAllMust) {
  const TestFolder folder;
  torch::nn::Sequential both(linear_of(1), linear_of(2), linear_of(3));
  save_weights(*both, folder.path("both.pt"));
  torch::nn::Sequential other(linear_of(0), linear_of(0, 5));
  const WeightsReport report = load_weights(*other, folder.path("both.pt"), {.strict = false});
  EXPECT_THAT(report.loaded, ElementsAre("0.bias", "0.weight", "1.bias"));
  EXPECT_THAT(report.unexpected, ElementsAre("2.bias", "2.weight"));
  EXPECT_TRUE(report.missing.empty());
  EXPECT_EQ(report.mismatched.size(), 1U);
  EXPECT_EQ(other->parameters()[3].max().item<float>(), 2);  // 1.bias
}

TEST(Weights, PrefixesAreRenamedOnlyIfTheModelHasNoSuchName) {
  const TestFolder folder;
  struct Wrapped : torch::nn::Module {
    explicit Wrapped(double value) { register_module("module", linear_of(value)); }
  };
  save_weights(Wrapped(5), folder.path("w.pt"));  // "module.weight"
  Wrapped same(0);
  EXPECT_TRUE(load_weights(same, folder.path("w.pt")).complete());
  EXPECT_EQ(same.parameters()[0].max().item<float>(), 5);
  auto plain = linear_of(0);
  EXPECT_TRUE(load_weights(*plain, folder.path("w.pt")).complete());
  EXPECT_EQ(plain->bias.max().item<float>(), 5);
  struct Encoder : torch::nn::Module {
    Encoder() { register_module("encoder", linear_of(0)); }
  } encoder;
  EXPECT_TRUE(load_weights(encoder, folder.path("w.pt"), {.rename = {{"module.", "encoder."}}}).complete());
  EXPECT_EQ(encoder.parameters()[0].max().item<float>(), 5);
  // A rule that leads nowhere ends.
  EXPECT_THAT(weights_error_of([&] {
                load_weights(encoder, folder.path("w.pt"), {.rename = {{"m", "mm"}}});
              }),
              HasSubstr("not in the model: module.bias"));
}

TEST(Weights, AFileThatCannotBeReplacedStaysAsItWas) {
  const TestFolder folder;
  save_weights(*linear_of(1), folder.path("w.safetensors"));
  auto broken = linear_of(2);
  broken->register_buffer("sparse", torch::eye(3).to_sparse());
  EXPECT_THAT(weights_error_of([&] { save_weights(*broken, folder.path("w.safetensors")); }), HasSubstr("\"sparse\""));
  EXPECT_THAT(weights_error_of([&] { save_weights(*linear_of(2), folder.path("none/w.pt")); }), HasSubstr("none"));
  EXPECT_THAT(weights_error_of([&] { save_weights(*linear_of(2), folder.path("w.onnx")); }),
              HasSubstr("does not end with .safetensors, .pt, .pth or .bin"));
  auto model = linear_of(0);
  load_weights(*model, folder.path("w.safetensors"));
  EXPECT_EQ(model->bias.max().item<float>(), 1);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Weights, AnIndexMustMatchItsFiles) {
  const TestFolder folder;
  save_weights(*linear_of(1), folder.path("a.safetensors"));
  const auto with = [&](const std::string& map) {
    std::ofstream(folder.path("i.index.json")) << "{\"weight_map\": " << map << "}";
    return weights_error_of([&] { load_weights(*linear_of(0), folder.path("i.index.json")); });
  };
  EXPECT_EQ(with(R"({"weight": "a.safetensors", "bias": "a.safetensors"})"), "");
  EXPECT_THAT(with(R"({"weight": "a.safetensors"})"), HasSubstr("\"bias\", which is not listed"));
  EXPECT_THAT(with(R"({"weight": "a.safetensors", "bias": "a.safetensors", "x": "a.safetensors"})"),
              HasSubstr("lists tensor \"x\""));
  EXPECT_THAT(with(R"({"weight": "../a.safetensors"})"), HasSubstr("not the name of a file in the same folder"));
  EXPECT_THAT(with("3"), HasSubstr("no \"weight_map\""));
  EXPECT_THAT(with(R"({"weight": "b.safetensors"})"), HasSubstr("b.safetensors"));
}

TEST(Weights, RubbishIsRefused) {
  const TestFolder folder;
  std::ofstream(folder.path("w.pt")) << "rubbish";
  EXPECT_THAT(weights_error_of([&] { load_weights(*linear_of(0), folder.path("w.pt")); }),
              HasSubstr("w.pt is not a valid safetensors file"));
}

}  // namespace
}  // namespace lockstep
