// Backwards that throw on one rank, or that do not compute all gradients, when the program continues.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ddp/testing/error_of.h"
#include "ddp/testing/test_models.h"
#include "lockstep/ddp/distributed_data_parallel.h"

namespace lockstep {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using namespace testing;  // ranks

struct Refuse : torch::autograd::Function<Refuse> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list) {
    throw std::runtime_error("out of memory");
  }
};

// Throws in backward if `refuse` is set, after backward has reached the output.
struct RefusingImpl : torch::nn::Module {
  RefusingImpl() { linear = register_module("linear", torch::nn::Linear(4, 1)); }
  at::Tensor forward(const at::Tensor& x, bool refuse) { return refuse ? Refuse::apply(linear(x)) : linear(x); }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(Refusing);

void expect_failure(const at::Tensor& loss) { EXPECT_THROW(loss.backward(), std::exception); }

at::Tensor batch_of(const Group& group, double factor = 1) { return torch::full({1, 4}, factor * (1 + group->rank())); }

TEST(DdpFailedBackwards, OnOneRankThatContinuesAreAnErrorOnAllRanks) {
  if (test_backend() != "lockstep") GTEST_SKIP() << "only Lockstep's engine notices that ranks are in different steps";
  const auto errors = errors_of_ranks(2, [](const Group& group) {
    Refusing net;
    DistributedDataParallel ddp(net, {.process_group = group});
    for (int step = 0; step < 5; ++step) {
      const bool refuse = group->rank() == 1 && step == 2;
      const at::Tensor loss = ddp(batch_of(group), refuse).sum();
      if (refuse) {
        expect_failure(loss);
      } else {
        loss.backward();
      }
    }
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AnyOf(HasSubstr("different operations"), HasSubstr("that the program caught")));
  }
}

TEST(DdpFailedBackwards, OnAllRanksBeforeAnyGradientMayBeFollowedByAnother) {
  run_ranks(2, [](const Group& group) {
    Refusing net;
    DistributedDataParallel ddp(net, {.process_group = group});
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      const at::Tensor first = ddp(batch_of(group), true).sum();
      const at::Tensor second = ddp(batch_of(group, 10), false).sum();
      expect_failure(first);
      second.backward();  // without a forward in between
      EXPECT_TRUE(torch::allclose(net->linear->weight.grad(), torch::full({1, 4}, 15.0))) << net->linear->weight.grad();
    }
  });
}

TEST(DdpFailedBackwards, AfterSomeGradientsEndTheTraining) {
  const auto errors = errors_of_ranks(2, [](const Group& group) {
    torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::Linear(4, 1));
    DistributedDataParallel ddp(net, {.process_group = group});
    const at::Tensor output = ddp(batch_of(group));
    const at::Tensor other = ddp(batch_of(group));
    net->parameters()[0].register_hook([](const at::Tensor&) { throw std::runtime_error("out of memory"); });
    expect_failure(output.sum());
    other.sum().backward();
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("ended with an exception"));
}

struct TwoHeadsImpl : torch::nn::Module {
  TwoHeadsImpl() {
    used = register_module("used", torch::nn::Linear(4, 1));
    unused = register_module("unused", torch::nn::Linear(4, 1));
  }
  at::Tensor forward(const at::Tensor& x) { return used(x); }
  torch::nn::Linear used{nullptr}, unused{nullptr};
};
TORCH_MODULE(TwoHeads);

// No forward in training follows that would report it.
TEST(DdpUnfinishedPass, OfTheLastStepIsReported) {
  for (const auto& ask : std::vector<std::function<void(DistributedDataParallel<TwoHeads>&)>>{
           [](auto& ddp) { ddp.verify_in_sync(); }, [](auto& ddp) { ddp.sync_buffers(); }}) {
    const auto errors = errors_of_ranks(2, [&](const Group& group) {
      TwoHeads net;
      DistributedDataParallel ddp(net, {.process_group = group});
      ddp(batch_of(group)).sum().backward();
      ask(ddp);
    });
    for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("unused.weight"));
  }
}

TEST(DdpUnfinishedPass, IsLoggedAtTheLatestWhenTheModelIsDestroyed) {
  ::testing::internal::CaptureStderr();
  run_ranks(2, [&](const Group& group) {
    TwoHeads net;
    DistributedDataParallel ddp(net, {.process_group = group});
    ddp(batch_of(group)).sum().backward();
  });
  const std::string log = testing::shared(::testing::internal::GetCapturedStderr(), 0);
  EXPECT_THAT(log, HasSubstr("the last step was not synchronised"));
}

// The parameter counts as unused since the first pass.
TEST(DdpStaticGraphs, RefuseAParameterThatIsUsedLaterUnderNoSync) {
  const auto errors = errors_of_ranks(2, [](const Group& group) {
    TwoHeads net;
    DistributedDataParallel ddp(net, {.process_group = group, .static_graph = true});
    ddp(batch_of(group)).sum().backward();
    const auto guard = ddp.no_sync();
    net->unused(batch_of(group)).sum().backward();
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("the graph has changed"));
}

}  // namespace
}  // namespace lockstep
