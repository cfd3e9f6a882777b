// The models of `lockstep bench ddp` and of the comparison with PyTorch: the examples' own, and an MLP.
// bench/peers/torch_models.py has the same ones, with parameters in the same order.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "examples/04_char_gpt/gpt.h"
#include "examples/common/fashion_net.h"

namespace lockstep::bench {

// A model with its loss, and data of a given size.
struct Task {
  std::shared_ptr<torch::nn::Module> module;
  std::function<torch::Tensor(const torch::Tensor&)> forward;
  std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& target)> loss;
  // A batch of this many samples, generated from the seed.
  std::function<std::pair<torch::Tensor, torch::Tensor>(std::int64_t samples, std::uint64_t seed)> data;
};

inline torch::nn::Sequential make_mlp(const std::vector<std::int64_t>& widths) {
  torch::nn::Sequential mlp;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    if (i > 0) mlp->push_back(torch::nn::ReLU());
    mlp->push_back(torch::nn::Linear(widths[i], widths[i + 1]));
  }
  return mlp;
}

template <typename Holder>
Task task_of(Holder model) {
  Task task;
  task.module = model.ptr();
  task.forward = [model](const torch::Tensor& x) mutable { return model->forward(x); };
  task.loss = [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::cross_entropy_loss(output.flatten(0, output.dim() - 2), target.flatten());
  };
  return task;
}

// "mlp" (18.9 M parameters), "cnn", "gpt", or "small_mlp" and "small_gpt", which are small enough for tests.
inline Task make_task(const std::string& name) {
  const auto generator = [](std::uint64_t seed) { return torch::make_generator<torch::CPUGeneratorImpl>(seed); };
  const auto labels = [generator](at::IntArrayRef shape, std::int64_t classes, std::uint64_t seed) {
    return torch::randint(0, classes, shape, generator(seed + 1), torch::kLong);
  };
  Task task;
  if (name == "mlp" || name == "small_mlp") {
    const std::vector<std::int64_t> widths = name == "mlp"
                                                 ? std::vector<std::int64_t>{1024, 2048, 2048, 2048, 2048, 2048, 10}
                                                 : std::vector<std::int64_t>{20, 64, 32, 10};
    task = task_of(make_mlp(widths));
    task.data = [=](std::int64_t samples, std::uint64_t seed) {
      return std::pair{torch::randn({samples, widths[0]}, generator(seed)), labels({samples}, 10, seed)};
    };
  } else if (name == "cnn") {
    task = task_of(FashionNet());
    task.data = [=](std::int64_t samples, std::uint64_t seed) {
      return std::pair{torch::randn({samples, 1, 28, 28}, generator(seed)), labels({samples}, 10, seed)};
    };
  } else if (name == "gpt" || name == "small_gpt") {
    const GptOptions options = name == "gpt"
                                   ? GptOptions{.vocabulary = 96, .context = 64, .width = 192, .heads = 6, .layers = 4}
                                   : GptOptions{.vocabulary = 32, .context = 16, .width = 32, .heads = 2, .layers = 2};
    task = task_of(Gpt(options));
    task.data = [=](std::int64_t samples, std::uint64_t seed) {
      return std::pair{torch::randint(0, options.vocabulary, {samples, options.context}, generator(seed), torch::kLong),
                       labels({samples, options.context}, options.vocabulary, seed)};
    };
  } else {
    throw std::invalid_argument("there is no model \"" + name + "\"; choose mlp, cnn or gpt");
  }
  return task;
}

}  // namespace lockstep::bench
