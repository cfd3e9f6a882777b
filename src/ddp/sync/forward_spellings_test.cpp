// Every way to call a wrapped model synchronises or throws; so does every change of the model after it was wrapped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ddp/testing/test_models.h"
#include "lockstep/ddp/distributed_data_parallel.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace testing;  // ranks

at::Tensor batch(const Group& group) { return torch::full({1, 2}, 1.0 + group->rank()); }

std::vector<DdpOptions> option_sets(const Group& group) {
  return {{.process_group = group},
          {.process_group = group, .find_unused_parameters = true},
          {.process_group = group, .static_graph = true}};
}

TEST(DdpForward, ThroughTheArrowOperatorIsDdps) {
  run_ranks(2, [](const Group& group) {
    for (const DdpOptions& options : option_sets(group)) {
      torch::nn::Linear net(2, 1);
      DistributedDataParallel ddp(net, options);
      for (int step = 0; step < 2; ++step) {
        ddp->zero_grad();
        ddp->forward(batch(group)).sum().backward();
        EXPECT_TRUE((net->weight.grad() == 1.5).all().item<bool>());
      }
      EXPECT_EQ(ddp->parameters().size(), 2u);
      EXPECT_EQ(ddp->named_parameters()[0].key(), "weight");
      EXPECT_EQ(ddp.module()->options.in_features(), 2);
      ddp->eval();
      EXPECT_FALSE(ddp->is_training());
    }
  });
}

TEST(DdpForward, OfTheModuleItselfThrowsAtTheFirstGradient) {
  for (std::size_t which : {0, 1, 2}) {
    const auto errors = errors_of_ranks(2, [&](const Group& group) {
      torch::nn::Linear net(2, 1);
      DistributedDataParallel ddp(net, option_sets(group)[which]);
      if (which == 1) ddp(batch(group)).sum().backward();  // also after a step that was right
      ddp.module()->forward(batch(group)).sum().backward();
    });
    for (const std::string& error : errors) {
      EXPECT_THAT(error, AllOf(HasSubstr("without a forward through DDP"), HasSubstr("ddp->forward(input)")));
    }
  }
}

TEST(DdpForward, OfTheModuleItselfMayAccumulateUnderNoSyncAndEvaluateAnywhere) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Linear net(2, 1);
    DistributedDataParallel ddp(net, {.process_group = group});
    {
      const auto guard = ddp.no_sync();
      ddp.module()->forward(batch(group)).sum().backward();
    }
    EXPECT_TRUE((net->weight.grad() == 1.0 + group->rank()).all().item<bool>());
    if (group->rank() == 0) {
      at::NoGradGuard no_grad;
      ddp.module()->forward(batch(group));
      ddp(batch(group));  // no buffers, so no communication
    }
    ddp(batch(group)).sum().backward();
    EXPECT_TRUE((net->weight.grad() == 3).all().item<bool>());
  });
}

TEST(DdpForward, ATermOutsideOfTheForwardIsPartOfTheLoss) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Linear net(2, 1);
    DistributedDataParallel ddp(net, {.process_group = group});
    (ddp(batch(group)).sum() + net->weight.sum()).backward();
    EXPECT_TRUE((net->weight.grad() == 2.5).all().item<bool>());
  });
}

TEST(DdpForward, WithoutAnOutputThatNeedsAGradientThrows) {
  const auto errors = errors_of_ranks(2, [](const Group& group) {
    torch::nn::Linear net(2, 1);
    GradientSynchronizer sync(named_tensors(net->named_parameters()), {}, {.process_group = group});
    sync.before_forward();
    sync.after_forward({net(batch(group)).detach()});
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("no output of this forward needs a gradient"));
}

TEST(DdpForward, AfterForwardAloneThrows) {
  const auto errors = errors_of_ranks(1, [](const Group& group) {
    torch::nn::Linear net(2, 1);
    GradientSynchronizer sync(named_tensors(net->named_parameters()), {}, {.process_group = group});
    sync.after_forward({net(batch(group))});
  });
  EXPECT_THAT(errors[0], HasSubstr("call before_forward() first"));
}

TEST(DdpNoSync, IsDecidedByTheForward) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Linear net(2, 1);
    DistributedDataParallel ddp(net, {.process_group = group});
    at::Tensor loss;
    {
      const auto guard = ddp.no_sync();
      loss = ddp(batch(group)).sum();
    }
    loss.backward();
    EXPECT_TRUE((net->weight.grad() == 1.0 + group->rank()).all().item<bool>()) << "accumulated";
    loss = ddp(batch(group)).sum();
    const auto guard = ddp.no_sync();
    loss.backward();
    EXPECT_TRUE((net->weight.grad() == 3).all().item<bool>()) << "averaged";
  });
}

// ---- models that change after they were wrapped

std::string change(const std::function<void(torch::nn::Sequential&)>& change_model) {
  const auto errors = errors_of_ranks(2, [&](const Group& group) {
    torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::Linear(2, 1));
    net->parameters()[0].set_requires_grad(false);
    DistributedDataParallel ddp(net, {.process_group = group});
    ddp(torch::ones({1, 2})).sum().backward();
    change_model(net);
    const auto type = net->parameters()[2].scalar_type();
    ddp(torch::ones({1, 2}, type)).sum().backward();
  });
  // The rank that is later hears it from the other one.
  EXPECT_TRUE(errors[0].ends_with(errors[1]) || errors[1].ends_with(errors[0])) << errors[0] << '\n' << errors[1];
  return errors[0];
}

TEST(DdpModelChanges, AreNamedAtTheNextForward) {
  EXPECT_THAT(change([](auto& net) { net->to(torch::kDouble); }),
              AllOf(HasSubstr("parameter \"0.weight\" changed its type from Float to Double"),
                    HasSubstr("make a new DistributedDataParallel")));
  EXPECT_THAT(change([](auto& net) {
                net->parameters()[2].set_data(torch::ones({1, 2}, torch::kDouble));
              }),
              HasSubstr("parameter \"1.weight\" changed its type"));
  EXPECT_THAT(change([](auto& net) {
                net->parameters()[2].set_data(torch::ones({3, 2}));
              }),
              HasSubstr("parameter \"1.weight\" changed its shape from [1, 2] to [3, 2]"));
  EXPECT_THAT(change([](auto& net) { net->parameters()[0].set_requires_grad(true); }),
              HasSubstr("parameter \"0.weight\" was unfrozen"));
  EXPECT_THAT(change([](auto& net) { net->parameters()[2].set_requires_grad(false); }),
              HasSubstr("parameter \"1.weight\" was frozen"));
  EXPECT_THAT(change([](auto& net) { net->push_back(torch::nn::Linear(1, 1)); }),
              HasSubstr("parameter \"2.weight\" was added"));
}

TEST(DdpModelChanges, NewValuesOfTheSameKindAreAccepted) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Linear net(2, 1);
    DistributedDataParallel ddp(net, {.process_group = group});
    ddp(batch(group)).sum().backward();
    net->weight.set_data(torch::ones({1, 2}));
    net->zero_grad();
    ddp(batch(group)).sum().backward();
    EXPECT_TRUE((net->weight.grad() == 1.5).all().item<bool>());
    std::stringstream archive;
    torch::save(net, archive);
    torch::load(net, archive);  // gives every parameter a new accumulator
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      ddp(batch(group)).sum().backward();
      EXPECT_TRUE((net->weight.grad() == 1.5).all().item<bool>());
    }
  });
}

TEST(DdpModelChanges, AllParametersMayBeFrozenTemporarily) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Linear generator(2, 2), net(2, 1);
    DistributedDataParallel ddp(net, {.process_group = group}), source(generator, {.process_group = group});
    const auto freeze = [&](bool frozen) {
      for (at::Tensor& parameter : net->parameters()) parameter.set_requires_grad(!frozen);
    };
    for (int step = 0; step < 3; ++step) {
      ddp(batch(group)).sum().backward();
      freeze(true);
      ddp(source(batch(group))).sum().backward();
      freeze(false);
    }
    EXPECT_TRUE((net->weight.grad() == 4.5).all().item<bool>()) << net->weight.grad();
    EXPECT_EQ(source.logging_data().steps, 3);
  });
}

}  // namespace
}  // namespace lockstep
