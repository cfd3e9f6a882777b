// A small convolutional network for images of 28 x 28.
#pragma once

#include <torch/torch.h>

// Cloneable, because DataParallel copies it.
struct FashionNetImpl : torch::nn::Cloneable<FashionNetImpl> {
  FashionNetImpl() { reset(); }
  void reset() override {
    features = register_module(
        "features", torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 16, 5).padding(2)),
                                          torch::nn::BatchNorm2d(16), torch::nn::ReLU(), torch::nn::MaxPool2d(2),
                                          torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 32, 5).padding(2)),
                                          torch::nn::BatchNorm2d(32), torch::nn::ReLU(), torch::nn::MaxPool2d(2)));
    classifier = register_module("classifier", torch::nn::Sequential(torch::nn::Linear(32 * 7 * 7, 128),
                                                                     torch::nn::ReLU(), torch::nn::Linear(128, 10)));
  }
  torch::Tensor forward(const torch::Tensor& images) {
    return classifier->forward(features->forward(images).flatten(1));
  }

  torch::nn::Sequential features{nullptr}, classifier{nullptr};
};
TORCH_MODULE(FashionNet);
