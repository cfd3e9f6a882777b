// A small GPT (minGPT's shape): token and position embeddings, blocks of causal self-attention and an MLP.
#pragma once

#include <torch/torch.h>

#include <cmath>

struct GptOptions {
  std::int64_t vocabulary = 256;
  std::int64_t context = 64;
  std::int64_t width = 96;
  std::int64_t heads = 4;
  std::int64_t layers = 3;
  double dropout = 0.0;
};

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(const GptOptions& options) : heads(options.heads) {
    const std::int64_t width = options.width;
    norm1 = register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    norm2 = register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    attention = register_module("attention", torch::nn::Linear(width, 3 * width));
    projection = register_module("projection", torch::nn::Linear(width, width));
    mlp = register_module("mlp", torch::nn::Sequential(torch::nn::Linear(width, 4 * width), torch::nn::GELU(),
                                                       torch::nn::Linear(4 * width, width)));
    dropout = register_module("dropout", torch::nn::Dropout(options.dropout));
    mask = register_buffer("mask", torch::ones({options.context, options.context}, torch::kBool).triu(1));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = x + dropout(projection(attend(norm1(x))));
    return x + dropout(mlp->forward(norm2(x)));
  }
  torch::Tensor attend(const torch::Tensor& x) {
    const auto batch = x.size(0), length = x.size(1), width = x.size(2);
    const auto parts = attention(x).view({batch, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
    torch::Tensor weights = parts[0].matmul(parts[1].transpose(-2, -1)) / std::sqrt(static_cast<double>(width / heads));
    weights = weights.masked_fill(mask.slice(0, 0, length).slice(1, 0, length), -1e9).softmax(-1);
    return weights.matmul(parts[2]).transpose(1, 2).reshape({batch, length, width});
  }

  std::int64_t heads;
  torch::nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  torch::nn::Linear attention{nullptr}, projection{nullptr};
  torch::nn::Sequential mlp{nullptr};
  torch::nn::Dropout dropout{nullptr};
  torch::Tensor mask;
};
TORCH_MODULE(Block);

struct GptImpl : torch::nn::Module {
  explicit GptImpl(const GptOptions& options_) : options(options_) {
    token = register_module("token", torch::nn::Embedding(options.vocabulary, options.width));
    position = register_module("position", torch::nn::Embedding(options.context, options.width));
    for (std::int64_t i = 0; i < options.layers; ++i) blocks->push_back(Block(options));
    register_module("blocks", blocks);
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.width})));
    head = register_module("head",
                           torch::nn::Linear(torch::nn::LinearOptions(options.width, options.vocabulary).bias(false)));
    torch::NoGradGuard no_grad;
    for (auto& item : named_parameters()) {
      if (item.key().find("norm") != std::string::npos) continue;
      if (item.key().find("bias") != std::string::npos) {
        item.value().zero_();
      } else {
        item.value().normal_(0, 0.02);
      }
    }
  }
  torch::Tensor forward(const torch::Tensor& tokens) {
    torch::Tensor x = token(tokens) + position(torch::arange(tokens.size(1)));
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    return head(norm(x));
  }

  GptOptions options;
  torch::nn::Embedding token{nullptr}, position{nullptr};
  torch::nn::ModuleList blocks;
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Gpt);
