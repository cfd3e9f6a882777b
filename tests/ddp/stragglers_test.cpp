// One of three processes is slow in one part of its training step: DDP must name it and the part.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "lockstep/lockstep.h"
#include "support/process_set.h"

namespace lockstep::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

void work(milliseconds time) { std::this_thread::sleep_for(time); }

// How much longer than the others the slow rank works in each step: 50 ms, or as long as the rest of a step takes, so
// that it stands out on a busy machine, too.
class Delay {
 public:
  milliseconds now() const { return now_; }
  void step_ended() {
    const auto rest = std::chrono::duration_cast<milliseconds>(Clock::now() - began_) - now_;
    now_ = std::clamp(rest, milliseconds(50), milliseconds(500));
    began_ = Clock::now();
  }

 private:
  milliseconds now_{50};
  Clock::time_point began_ = Clock::now();
};

// Three layers of more than 1 MiB each: one bucket for each of their weights.
struct SlowModelImpl : torch::nn::Module {
  SlowModelImpl(std::string slow, const Delay& of_rank) : slow_in(std::move(slow)), delay(of_rank) {
    torch::manual_seed(1);
    for (int i = 0; i < 3; ++i) {
      layers.push_back(register_module("layer" + std::to_string(i),
                                       torch::nn::Linear(torch::nn::LinearOptions(600, 600).bias(false))));
    }
  }
  at::Tensor forward(at::Tensor x) {
    if (slow_in == "forward") work(delay.now());
    for (std::size_t i = 0; i < 3; ++i) {
      x = torch::tanh(layers[i](x));
      // Runs before the gradient of this layer's weights is computed.
      if (slow_in == "backward" && i == 1) x.register_hook([this](const at::Tensor&) { work(delay.now()); });
    }
    return x;
  }
  std::string slow_in;
  const Delay& delay;
  std::vector<torch::nn::Linear> layers;
};
TORCH_MODULE(SlowModel);

LOCKSTEP_PROCESS_ROLE(maybe_slow_rank) {
  torch::set_num_threads(1);
  ProcessGroupScope job;
  const char* const where = std::getenv("SLOW_IN");
  const std::string slow = job.rank() == 1 && where != nullptr ? where : "";
  Delay delay;
  SlowModel model(slow, delay);
  DistributedDataParallel ddp(model, DdpOptions{.straggler_report_every = std::chrono::milliseconds(1000)});
  torch::optim::SGD optimizer(ddp->parameters(), 0.01);
  for (int step = 0; step < 55; ++step) {
    {
      const Phase phase(PhaseKind::data);
      // If no rank is slow on purpose, so long that what a rank loses on a busy machine is no large part of the step.
      work(milliseconds(where == nullptr ? 100 : 20));
      if (slow == "data") work(delay.now());
    }
    if (slow == "unmarked") work(delay.now());
    optimizer.zero_grad();
    ddp(torch::ones({4, 600})).sum().backward();
    {
      const Phase phase(PhaseKind::optimizer);
      if (slow == "optimizer") work(delay.now());
      optimizer.step();
    }
    delay.step_ended();
  }
  const StragglerReport report = ddp.stragglers();
  std::cout << "report: " << report.to_string() << std::endl;
  return 0;
}

struct SlowPart {
  std::string where;
  std::string sentence;
};

class SlowRank : public ::testing::TestWithParam<SlowPart> {};
INSTANTIATE_TEST_SUITE_P(Parts, SlowRank,
                         ::testing::Values(SlowPart{"data", "its data loading"}, SlowPart{"forward", "its forward"},
                                           SlowPart{"backward", "its backward before bucket 1 .layer1.weight. was"},
                                           SlowPart{"optimizer", "its optimizer"},
                                           SlowPart{"unmarked", "what it does between backward and the next forward"}),
                         [](const auto& info) { return info.param.where; });

TEST_P(SlowRank, TheRankAndThePartAreNamedOnAllRanksAndInTheLog) {
  ProcessSet ranks = start_ranks(3, "maybe_slow_rank", {.environment = {{"SLOW_IN", GetParam().where}}});
  ASSERT_TRUE(ranks.wait_all(in_seconds(90))) << ranks.report();
  ASSERT_TRUE(ranks.all_succeeded()) << ranks.report();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(ranks.output(rank), ContainsRegex("report: rank 1 .host [^)]+. arrives last in [0-9]+ % of the steps, "
                                                  "mainly because of " +
                                                  GetParam().sentence))
        << ranks.report();
  }
  EXPECT_THAT(ranks.error_output(0), ContainsRegex("rank 0. rank 1 .* arrives last")) << ranks.report();
  EXPECT_THAT(ranks.error_output(2), Not(HasSubstr("arrives last"))) << "only rank 0 logs it";
}

TEST(SlowRanks, NoRankIsNamedIfNoneIsSlow) {
  ProcessSet ranks = start_ranks(3, "maybe_slow_rank", {.environment = {{"SLOW_IN", std::nullopt}}});
  ASSERT_TRUE(ranks.wait_all(in_seconds(90))) << ranks.report();
  ASSERT_TRUE(ranks.all_succeeded()) << ranks.report();
  EXPECT_THAT(ranks.output(0), HasSubstr("report: no rank is consistently late")) << ranks.report();
  EXPECT_THAT(ranks.error_output(0), Not(HasSubstr("arrives last"))) << ranks.report();
}

}  // namespace
}  // namespace lockstep::testing
