// The accuracy of a classifier over all test images. Each rank evaluates its own shard, and their counts are added.
#pragma once

#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "common/fashion_mnist.h"

// `scores` maps a batch of images to (N, classes), with the model in evaluation mode. Collective.
template <typename Scores>
double test_accuracy(const FashionMnist& data, const Scores& scores) {
  torch::NoGradGuard no_grad;
  const auto rank = static_cast<std::size_t>(lockstep::get_rank());
  const auto world = static_cast<std::size_t>(lockstep::get_world_size());
  std::vector<std::size_t> mine;
  for (std::size_t i = rank; i < *data.size(); i += world) mine.push_back(i);
  lockstep::Accuracy accuracy;
  for (std::size_t begin = 0; begin < mine.size(); begin += 500) {
    const auto batch = data.batch({mine.begin() + static_cast<std::ptrdiff_t>(begin),
                                   mine.begin() + static_cast<std::ptrdiff_t>(std::min(begin + 500, mine.size()))});
    accuracy.add(scores(batch.data), batch.target);
  }
  return accuracy.compute();
}
