#include "lockstep/ddp/zero_redundancy_optimizer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sstream>

#include "ddp/testing/test_ranks.h"
#include "lockstep/ddp/clip_grad.h"
#include "lockstep/ddp/distributed_data_parallel.h"

namespace lockstep {
namespace {

using testing::run_ranks;
using torch::optim::OptimizerParamGroup;

// Shapes of all kinds: one large enough to be sent alone, a non-contiguous one, one of another type.
std::vector<at::Tensor> make_parameters() {
  at::Generator generator = at::detail::createCPUGenerator(1);
  const auto random = [&](std::vector<std::int64_t> shape, at::ScalarType type = at::kFloat) {
    return at::randn(shape, generator, at::TensorOptions().dtype(type));
  };
  std::vector<at::Tensor> parameters{
      random({300, 300}),        random({300}),
      random({7, 9}).t(),        random({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast),
      random({11}, at::kDouble), random({})};
  for (at::Tensor& parameter : parameters) parameter.requires_grad_();
  return parameters;
}

// Equal gradients on all ranks, as DDP leaves them; now and then a parameter has none.
void set_gradients(std::vector<at::Tensor>& parameters, int step) {
  at::Generator generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(1000 + step));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor gradient = at::randn(parameters[i].sizes(), generator, parameters[i].options());
    parameters[i].mutable_grad() = step == 2 && i == 1 ? at::Tensor() : gradient.detach();
  }
}

template <typename Options>
std::vector<OptimizerParamGroup> two_groups(const std::vector<at::Tensor>& p, const Options& other) {
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>{p[0], p[3], p[5]});
  groups.emplace_back(std::vector<at::Tensor>{p[1], p[2], p[4]}, std::make_unique<Options>(other));
  return groups;
}

void run_steps(torch::optim::Optimizer& optimizer, std::vector<at::Tensor>& parameters, int begin, int end) {
  for (int step = begin; step < end; ++step) {
    optimizer.zero_grad();
    set_gradients(parameters, step);
    if (step == 3) optimizer.param_groups()[0].options().set_lr(0.003);
    optimizer.step();
  }
}

template <typename Saved>
std::string saved(const Saved& optimizer) {
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  return stream.str();
}

template <typename Loaded>
void load(Loaded& optimizer, const std::string& text) {
  torch::serialize::InputArchive archive;
  archive.load_from(text.data(), text.size());
  optimizer.load(archive);
}

void expect_equal(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& expected, int rank) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(at::equal(got[i], expected[i])) << "parameter " << i << " on rank " << rank;
  }
}

template <typename Plain, typename Options>
void expect_equal_to_plain(const Options& defaults, const Options& other) {
  for (int ranks : {1, 2, 3}) {
    std::vector<at::Tensor> expected = make_parameters();
    Plain plain(two_groups(expected, other), defaults);
    run_steps(plain, expected, 0, 6);
    run_ranks(ranks, [&](const std::shared_ptr<ProcessGroup>& group) {
      std::vector<at::Tensor> parameters = make_parameters();
      ZeroRedundancyOptimizer<Plain> zero(two_groups(parameters, other), defaults, {.group = group});
      run_steps(zero, parameters, 0, 6);
      expect_equal(parameters, expected, group->rank());
    });
  }
}

TEST(ZeroRedundancyOptimizer, EqualsPlainSgdBitForBit) {
  using Options = torch::optim::SGDOptions;
  expect_equal_to_plain<torch::optim::SGD>(Options(0.1), Options(0.01).momentum(0.9).nesterov(true));
}

TEST(ZeroRedundancyOptimizer, EqualsPlainAdamBitForBit) {
  using Options = torch::optim::AdamOptions;
  expect_equal_to_plain<torch::optim::Adam>(Options(0.01), Options(0.02).amsgrad(true).weight_decay(0.1));
}

TEST(ZeroRedundancyOptimizer, EqualsPlainAdamWBitForBit) {
  using Options = torch::optim::AdamWOptions;
  expect_equal_to_plain<torch::optim::AdamW>(Options(0.01), Options(0.02).weight_decay(0.0));
}

TEST(ZeroRedundancyOptimizer, EqualsTheFusedOptimizersBitForBit) {
  using Options = torch::optim::AdamWOptions;
  expect_equal_to_plain<optim::AdamW>(Options(0.01), Options(0.02).weight_decay(0.0).amsgrad(true));
  expect_equal_to_plain<optim::Lion>(optim::LionOptions(0.01), optim::LionOptions(0.02).weight_decay(0.1));
}

TEST(ZeroRedundancyOptimizer, ConsolidatesMasterWeights) {
  const auto make = [] {
    std::vector<at::Tensor> parameters;
    for (int i = 0; i < 4; ++i) parameters.push_back(at::full({50 + i}, 1.0, at::kBFloat16).requires_grad_());
    return parameters;
  };
  const auto step = [](torch::optim::Optimizer& optimizer, std::vector<at::Tensor>& parameters, int steps) {
    for (int i = 0; i < steps; ++i) {
      for (at::Tensor& parameter : parameters) parameter.mutable_grad() = at::ones_like(parameter);
      optimizer.step();
    }
  };
  std::vector<at::Tensor> expected = make();
  optim::AdamW plain(expected, {1e-4});
  step(plain, expected, 5);
  const std::string want = saved(plain);
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    std::vector<at::Tensor> parameters = make();
    ZeroRedundancyOptimizer<optim::AdamW> zero(parameters, {1e-4}, {.group = group});
    step(zero, parameters, 5);
    zero.consolidate_state_dict(0);
    std::vector<at::Tensor> continued = make();
    optim::AdamW other(continued, {1e-4});
    if (group->rank() == 0) {
      load(other, saved(zero));
      EXPECT_EQ(saved(other).size(), want.size());
      for (std::size_t i = 0; i < continued.size(); ++i) {
        at::NoGradGuard no_grad;
        continued[i].copy_(parameters[i]);
      }
      step(other, continued, 60);
      std::vector<at::Tensor> alone = make();
      optim::AdamW whole(alone, {1e-4});
      step(whole, alone, 65);
      expect_equal(continued, alone, 0);
    }
  });
}

TEST(ZeroRedundancyOptimizer, HoldsOnlyItsShardOfTheState) {
  run_ranks(3, [](const std::shared_ptr<ProcessGroup>& group) {
    std::vector<at::Tensor> parameters;
    for (int i = 0; i < 12; ++i) parameters.push_back(at::ones({100}).requires_grad_());
    ZeroRedundancyOptimizer<torch::optim::Adam> zero(parameters, {0.01}, {.group = group});
    for (at::Tensor& parameter : parameters) parameter.mutable_grad() = at::ones({100});
    zero.step();
    EXPECT_EQ(zero.local().state().size(), 4U);
    EXPECT_TRUE(zero.state().empty());
  });
}

TEST(ZeroRedundancyOptimizer, ConsolidatedStateContinuesInOneProcessAndBack) {
  using Options = torch::optim::AdamOptions;
  std::vector<at::Tensor> expected = make_parameters();
  torch::optim::Adam plain(two_groups(expected, Options(0.02)), Options(0.01));
  run_steps(plain, expected, 0, 3);
  const std::vector<at::Tensor> middle = [&] {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& parameter : expected) copies.push_back(parameter.detach().clone());
    return copies;
  }();
  const auto continue_from = [&](std::vector<at::Tensor>& parameters) {
    at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].copy_(middle[i]);
  };

  std::string archive;  // written by rank 1 of 3
  run_ranks(3, [&](const std::shared_ptr<ProcessGroup>& group) {
    std::vector<at::Tensor> parameters = make_parameters();
    ZeroRedundancyOptimizer<torch::optim::Adam> zero(two_groups(parameters, Options(0.02)), {0.01}, {.group = group});
    run_steps(zero, parameters, 0, 3);
    EXPECT_THROW(saved(zero), Error) << "not consolidated";
    zero.consolidate_state_dict(1);
    if (group->rank() == 1) {
      archive = saved(zero);
    } else {
      EXPECT_THROW(saved(zero), Error);
    }
    set_gradients(parameters, 9);
    zero.step();
    EXPECT_THROW(saved(zero), Error) << "the collected state is old";
  });
  archive = testing::shared(archive, 1);
  const std::string plain_archive = saved(plain);
  run_steps(plain, expected, 3, 6);

  std::vector<at::Tensor> alone = make_parameters();
  continue_from(alone);
  torch::optim::Adam one_process(two_groups(alone, Options(0.02)), Options(0.01));
  load(one_process, archive);
  run_steps(one_process, alone, 3, 6);
  expect_equal(alone, expected, -1);

  for (const std::string& source : {archive, plain_archive}) {
    run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
      std::vector<at::Tensor> parameters = make_parameters();
      continue_from(parameters);
      ZeroRedundancyOptimizer<torch::optim::Adam> zero(two_groups(parameters, Options(0.02)), {0.01}, {.group = group});
      load(zero, source);
      EXPECT_LT(zero.local().state().size(), parameters.size());
      run_steps(zero, parameters, 3, 6);
      expect_equal(parameters, expected, group->rank());
    });
  }
}

TEST(ZeroRedundancyOptimizer, WorksWithMoreRanksThanParametersAndWithAScheduler) {
  run_ranks(3, [](const std::shared_ptr<ProcessGroup>& group) {
    at::Tensor parameter = at::ones({4}).requires_grad_(), expected = at::ones({4}).requires_grad_();
    ZeroRedundancyOptimizer<torch::optim::SGD> zero(std::vector<at::Tensor>{parameter}, {0.1}, {.group = group});
    torch::optim::SGD plain({expected}, 0.1);
    torch::optim::StepLR zero_schedule(zero, 1, 0.5), plain_schedule(plain, 1, 0.5);
    for (int step = 0; step < 3; ++step) {
      const auto closure_for = [](torch::optim::Optimizer& optimizer, const at::Tensor& tensor) {
        return [&optimizer, tensor] {
          optimizer.zero_grad();
          at::Tensor loss = tensor.square().sum();
          loss.backward();
          return loss;
        };
      };
      EXPECT_TRUE(at::equal(zero.step(closure_for(zero, parameter)), plain.step(closure_for(plain, expected))));
      zero_schedule.step();
      plain_schedule.step();
      EXPECT_TRUE(at::equal(parameter, expected));
    }
    zero.consolidate_state_dict();
    if (group->rank() == 0) {
      EXPECT_FALSE(saved(zero).empty());
    }
  });
}

// Ten steps of DDP with clipping; returns the parameters.
template <typename Make>
std::vector<at::Tensor> train_with_ddp(const std::shared_ptr<ProcessGroup>& group, const Make& make_optimizer) {
  torch::nn::Linear model(20, 30);
  {
    at::NoGradGuard no_grad;
    model->weight.copy_(at::linspace(-1, 1, 600).view({30, 20}));
    model->bias.zero_();
  }
  DistributedDataParallel ddp(model, {.process_group = group});
  auto optimizer = make_optimizer(model->parameters());
  at::Generator generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(group->rank()));
  for (int step = 0; step < 10; ++step) {
    optimizer->zero_grad();
    ddp(at::randn({8, 20}, generator)).square().mean().backward();
    EXPECT_GT(clip_grad_norm_(model->parameters(), 0.01, {.group = group}), 0.01);
    optimizer->step();
  }
  ddp.verify_in_sync();
  return model->parameters();
}

TEST(ZeroRedundancyOptimizer, TrainsWithDdpAndClippingLikeThePlainOptimizer) {
  run_ranks(3, [](const std::shared_ptr<ProcessGroup>& group) {
    using Plain = torch::optim::AdamW;
    const auto expected = train_with_ddp(
        group, [](const std::vector<at::Tensor>& parameters) { return std::make_unique<Plain>(parameters, 0.01); });
    const auto got = train_with_ddp(group, [&](const std::vector<at::Tensor>& parameters) {
      return std::make_unique<ZeroRedundancyOptimizer<Plain>>(parameters, 0.01, ZeroOptions{.group = group});
    });
    expect_equal(got, expected, group->rank());
  });
}

TEST(ZeroRedundancyOptimizer, RefusesInvalidArguments) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    using Zero = ZeroRedundancyOptimizer<torch::optim::SGD>;
    const at::Tensor parameter = at::ones({4}).requires_grad_();
    const ZeroOptions options{.group = group};
    EXPECT_THROW(Zero(std::vector<at::Tensor>{}, {0.1}, options), Error);
    EXPECT_THROW(Zero(std::vector<at::Tensor>{parameter, parameter}, {0.1}, options), Error);
    Zero zero(std::vector<at::Tensor>{parameter}, {0.1}, options);
    EXPECT_THROW(zero.consolidate_state_dict(2), Error);
    zero.add_param_group(OptimizerParamGroup({at::ones({3}).requires_grad_()}));
    EXPECT_THROW(zero.step(), Error);
  });
}

TEST(BalanceGreedily, GivesEachRankAboutEquallyMuch) {
  const std::vector<std::int64_t> sizes{1, 8, 3, 3, 2, 7};
  EXPECT_EQ(detail::balance_greedily(sizes, 3), (std::vector<int>{1, 0, 2, 2, 2, 1}));  // 8 each
  EXPECT_EQ(detail::balance_greedily(sizes, 1), std::vector<int>(6, 0));
}

TEST(ZeroRedundancyOptimizer, RefusesParametersThatShareMemory) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    using Zero = ZeroRedundancyOptimizer<torch::optim::SGD>;
    at::Tensor first = at::ones({4}).requires_grad_(), second = at::ones({4}).requires_grad_();
    second.set_data(first);
    EXPECT_THROW(Zero(std::vector<at::Tensor>{first, second}, {0.1}, ZeroOptions{.group = group}), Error);
    const at::Tensor flat = at::ones({8});
    at::Tensor head = at::ones({4}).requires_grad_(), tail = at::ones({4}).requires_grad_();
    head.set_data(flat.narrow(0, 0, 4));
    tail.set_data(flat.narrow(0, 4, 4));
    EXPECT_NO_THROW(Zero(std::vector<at::Tensor>{head, tail}, {0.1}, ZeroOptions{.group = group}));
  });
}

TEST(ZeroRedundancyOptimizer, RefusesParametersInAnotherOrderOnOneRank) {
  const auto errors = testing::errors_of_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    const at::Tensor first = at::full({4}, 1.0).requires_grad_(), second = at::full({4}, 2.0).requires_grad_();
    std::vector<at::Tensor> parameters{first, second};
    if (group->rank() == 1) std::swap(parameters[0], parameters[1]);
    ZeroRedundancyOptimizer<torch::optim::SGD> zero(parameters, {0.1}, ZeroOptions{.group = group});
    for (const at::Tensor& parameter : parameters) parameter.mutable_grad() = at::ones({4});
    zero.step();
  });
  for (const std::string& error : errors) EXPECT_NE(error.find("in the same order"), std::string::npos) << error;
}

}  // namespace
}  // namespace lockstep
