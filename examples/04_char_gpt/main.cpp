// Lesson 4: a character-level GPT on any text file, with what training a language model usually needs: AdamW with
// weight decay for the weight matrices only, and gradient clipping, which works with DDP as usual. At the end
// the program prints a sample of generated text.
//
//   ./04_char_gpt [--text FILE] [--nproc 2] [--steps 300] [--batch 16] [--sample 300]
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>

#include "common/command_line.h"
#include "gpt.h"

namespace {

// The text as tokens, one for each distinct character.
struct Text {
  explicit Text(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (bytes.size() < 1000)
      throw std::runtime_error("--text: " + path + " cannot be read, or has fewer than 1000 characters");
    const std::set<char> different(bytes.begin(), bytes.end());
    alphabet.assign(different.begin(), different.end());
    tokens = torch::empty({static_cast<std::int64_t>(bytes.size())}, torch::kLong);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      tokens.data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(alphabet.find(bytes[i]));
    }
  }
  // A window that begins at each of `starts`: the input, and the target, which is the input shifted by one.
  std::pair<torch::Tensor, torch::Tensor> windows(const torch::Tensor& starts, std::int64_t length) const {
    const torch::Tensor index = starts.unsqueeze(1) + torch::arange(length).unsqueeze(0);
    return {tokens.index({index}), tokens.index({index + 1})};
  }

  std::string alphabet;
  torch::Tensor tokens;
};

// Weight decay for the matrices; none for biases, norms and embeddings.
std::vector<torch::optim::OptimizerParamGroup> parameter_groups(Gpt& model, double rate) {
  std::vector<torch::Tensor> decayed, others;
  for (const auto& item : model->named_parameters()) {
    const bool matrix = item.value().dim() >= 2 && item.key().find("token") == std::string::npos &&
                        item.key().find("position") == std::string::npos;
    (matrix ? decayed : others).push_back(item.value());
  }
  const auto options = [rate](double decay) {
    return std::make_unique<torch::optim::AdamWOptions>(
        torch::optim::AdamWOptions(rate).weight_decay(decay).betas({0.9, 0.95}));
  };
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(decayed, options(0.1));
  groups.emplace_back(others, options(0));
  return groups;
}

std::string generate(Gpt& model, const Text& text, std::int64_t length) {
  torch::NoGradGuard no_grad;
  model->eval();
  torch::Tensor tokens = text.tokens.slice(0, 0, 16).unsqueeze(0);
  for (std::int64_t i = 0; i < length; ++i) {
    const torch::Tensor seen = tokens.slice(1, std::max<std::int64_t>(0, tokens.size(1) - model->options.context));
    const torch::Tensor chances = (model(seen).select(1, -1) / 0.8).softmax(-1);
    tokens = torch::cat({tokens, chances.multinomial(1)}, 1);
  }
  std::string result;
  for (std::int64_t i = 0; i < tokens.size(1); ++i) {
    result += text.alphabet[static_cast<std::size_t>(tokens[0][i].item<std::int64_t>())];
  }
  return result;
}

void train(const CommandLine& options) {
  lockstep::ProcessGroupScope job;
  const Text text(options.text("--text"));
  torch::manual_seed(1);
  Gpt model(GptOptions{.vocabulary = static_cast<std::int64_t>(text.alphabet.size())});
  lockstep::DistributedDataParallel ddp(model, {.broadcast_buffers = false});  // the masks never change
  lockstep::optim::AdamW optimizer(parameter_groups(model, 3e-3), torch::optim::AdamWOptions(3e-3));
  // Clips in the same pass. The gradients are averaged by then, so that the norm is the same on every rank.
  optimizer.step_options().max_norm = 1.0;

  const int steps = options.integer("--steps"), batch = options.integer("--batch");
  lockstep::LearningRate rate(
      optimizer,
      lockstep::schedule::cosine(
          {.warmup_steps = steps / 20, .total_steps = std::max(steps, 1), .final_factor = 0.1, .warmup_start = 0.1}));
  const std::int64_t context = model->options.context;
  torch::manual_seed(100 + job.rank());  // each rank reads at different places
  lockstep::Progress progress("gpt", {.total = static_cast<std::int64_t>(steps) * batch * job.world_size()});
  double first = 0, last = 0;
  for (int step = 0; step < steps; ++step) {
    const auto [input, target] =
        text.windows(torch::randint(text.tokens.size(0) - context - 1, {batch}, torch::kLong), context);
    optimizer.zero_grad();
    const torch::Tensor loss = torch::cross_entropy_loss(ddp(input).flatten(0, 1), target.flatten());
    loss.backward();
    rate.apply(step);
    optimizer.step();
    last = loss.item<double>();
    if (step == 0) first = last;
    progress.advance(static_cast<std::int64_t>(batch) * job.world_size(), {{"loss", last}});
    lockstep::log_metric("loss", last);
  }
  ddp.verify_in_sync();
  if (job.rank() != 0) return;
  std::printf("loss %.3f -> %.3f\n---\n%s\n---\n", first, last,
              generate(model, text, options.integer("--sample")).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const CommandLine options(argc, argv,
                            {{"--text", "/usr/share/common-licenses/GPL-3"},
                             {"--nproc", "2"},
                             {"--steps", "300"},
                             {"--batch", "16"},
                             {"--sample", "300"}});
  return run_ranks(options.integer("--nproc"), [&] { train(options); });
}
