// A generator and a discriminator for images of 28 x 28 with pixels from -1 to 1, both with batch norm.
#pragma once

#include <torch/torch.h>

// Maps noise of kNoise numbers to an image.
struct GeneratorImpl : torch::nn::Module {
  static constexpr std::int64_t kNoise = 64;

  GeneratorImpl() {
    using namespace torch::nn;
    seed = register_module(
        "seed", Sequential(Linear(LinearOptions(kNoise, 64 * 7 * 7).bias(false)), BatchNorm1d(64 * 7 * 7), ReLU()));
    image = register_module(
        "image",
        Sequential(ConvTranspose2d(ConvTranspose2dOptions(64, 32, 4).stride(2).padding(1).bias(false)), BatchNorm2d(32),
                   ReLU(), ConvTranspose2d(ConvTranspose2dOptions(32, 1, 4).stride(2).padding(1)), Tanh()));
  }
  torch::Tensor forward(const torch::Tensor& noise) {
    return image->forward(seed->forward(noise).view({-1, 64, 7, 7}));
  }

  torch::nn::Sequential seed{nullptr}, image{nullptr};
};
TORCH_MODULE(Generator);

// Maps an image to a number, which is above 0 if the image looks real.
struct DiscriminatorImpl : torch::nn::Module {
  DiscriminatorImpl() {
    using namespace torch::nn;
    const LeakyReLUOptions leaky = LeakyReLUOptions().negative_slope(0.2);
    features =
        register_module("features", Sequential(Conv2d(Conv2dOptions(1, 32, 4).stride(2).padding(1)), LeakyReLU(leaky),
                                               Conv2d(Conv2dOptions(32, 64, 4).stride(2).padding(1).bias(false)),
                                               BatchNorm2d(64), LeakyReLU(leaky)));
    judge = register_module("judge", Linear(64 * 7 * 7, 1));
  }
  torch::Tensor forward(const torch::Tensor& images) {
    return judge->forward(features->forward(images).flatten(1)).squeeze(1);
  }

  torch::nn::Sequential features{nullptr};
  torch::nn::Linear judge{nullptr};
};
TORCH_MODULE(Discriminator);
