// PyTorch's tests of DataParallel: pytorch_parity.md has the list.
#include "lockstep/ddp/data_parallel.h"

#include <map>

#include "ddp/parity.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

// Compares outputs and gradients of one pass with those of the module itself. `output`: the tensor of what forward
// returns.
template <typename Holder, typename Output>
void expect_as_the_module(Holder module, const at::Tensor& input, const Output& output) {
  const at::Tensor expected = output(module->forward(input));
  expected.pow(2).sum().backward();
  Tensors wanted;
  for (const at::Tensor& gradient : gradients(module->parameters())) {
    wanted.push_back(gradient.is_sparse() ? gradient.to_dense() : gradient.clone());
  }
  drop_gradients(module->parameters());
  DataParallel dp(module, {.replicas = 2});
  for (int pass = 0; pass < 2; ++pass) {
    const at::Tensor result = output(dp(input));
    EXPECT_TRUE(at::allclose(result, expected, 1e-4, 1e-5));
    result.pow(2).sum().backward();
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const at::Tensor gradient = module->parameters()[i].grad();
      EXPECT_TRUE(at::allclose(gradient.is_sparse() ? gradient.to_dense() : gradient, wanted[i], 1e-4, 1e-4)) << i;
    }
    drop_gradients(module->parameters());
  }
}

TEST(ParityDataParallel, AnLstm) {
  struct FirstImpl : torch::nn::Cloneable<FirstImpl> {
    FirstImpl() { reset(); }
    void reset() override {
      lstm =
          register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(6, 5).batch_first(true).bidirectional(true)));
    }
    at::Tensor forward(const at::Tensor& x) { return std::get<0>(lstm(x)); }
    torch::nn::LSTM lstm{nullptr};
  };
  expect_as_the_module(with_known_parameters(std::make_shared<FirstImpl>()), batch(0, {4, 3, 6}),
                       [](const at::Tensor& output) { return output; });
}

TEST(ParityDataParallel, SparseGradients) {
  auto module = with_known_parameters(torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 5).sparse(true)));
  expect_as_the_module(module, at::arange(20).remainder(7).reshape({10, 2}),
                       [](const at::Tensor& output) { return output; });
}

TEST(ParityDataParallel, GradientsHaveTheirParametersLayout) {
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    auto module = with_known_parameters(torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 16, 2)));
    module->weight.set_data(module->weight.detach().contiguous(format));
    expect_as_the_module(module, batch(0, {4, 8, 5, 5}), [](const at::Tensor& output) { return output; });
    DataParallel dp(module, {.replicas = 2});
    dp(batch(0, {4, 8, 5, 5})).sum().backward();
    EXPECT_TRUE(module->weight.grad().is_contiguous(format));
  }
}

struct MapsImpl : torch::nn::Cloneable<MapsImpl> {
  void reset() override {}
  std::map<std::string, at::Tensor> forward(const at::Tensor& x) {
    std::map<std::string, at::Tensor> output{{"a", x}};
    if (x[0].item<float>() > 0) output["b"] = x;
    return output;
  }
};
TORCH_MODULE(Maps);

TEST(ParityDataParallel, OutputsOfDifferentLengthsAreRefused) {
  Maps module;
  DataParallel dp(module, {.replicas = 2});
  try {
    dp(torch::tensor({0.0F, 0.0F, 1.0F, 1.0F}));
    FAIL() << "should have thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("they must return equally many"));
  }
}

}  // namespace
}  // namespace lockstep::testing
