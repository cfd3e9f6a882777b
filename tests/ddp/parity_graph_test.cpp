// PyTorch's tests of DDP about what forward returns and which parameters the loss uses: pytorch_parity.md has the list.
#include <map>
#include <optional>

#include "ddp/parity.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using torch::nn::Linear;

// What forward returns is `box(first, second)`: the first does not use the third layer, the second does.
template <typename Box>
struct BoxedImpl : torch::nn::Module {
  explicit BoxedImpl(Box box_) : box(std::move(box_)) {
    first = register_module("first", without_bias(2, 10));
    second = register_module("second", without_bias(10, 4));
    third = register_module("third", without_bias(4, 4));
  }
  auto forward(const at::Tensor& input) {
    const at::Tensor x = torch::relu(second(torch::relu(first(input))));
    return box(torch::softmax(x, 1), torch::softmax(third(x), 1));
  }
  Box box;
  Linear first{nullptr}, second{nullptr}, third{nullptr};
};

template <typename Box, typename Unbox>
void expect_average_through(const Box& box, const Unbox& unbox) {
  for (const bool view : kBoth) {
    for (const bool find_unused : kBoth) {
      expect_average(
          2, {.find_unused_parameters = find_unused, .gradient_as_bucket_view = view},
          [&] { return with_known_parameters(std::make_shared<BoxedImpl<Box>>(box)); },
          [&](auto& model, int rank, int step) {
            const auto output = model.forward(batch(rank, {4, 2}, step));
            unbox(output).pow(2).sum().backward();
          });
    }
  }
}

using List = std::vector<at::Tensor>;
using Map = std::map<std::string, at::Tensor>;

TEST(ParityOutputs, TuplesListsMapsAndTheirNestingAreSearched) {
  using Tuple = std::tuple<std::string, at::Tensor, int, at::Tensor>;
  expect_average_through([](auto x, auto y) { return std::pair(x, y); }, [](const auto& o) { return o.second; });
  expect_average_through([](auto x, auto y) { return List{x, y}; }, [](const auto& o) { return o[1]; });
  expect_average_through(
      [](auto x, auto y) {
        return Tuple{"foo", x, 1, y};
      },
      [](const auto& o) { return std::get<3>(o); });
  expect_average_through(
      [](auto x, auto y) {
        return Map{{"a", x}, {"b", y}};
      },
      [](const auto& o) { return o.at("b"); });
  expect_average_through(
      [](auto x, auto y) {
        return std::vector<Map>{{}, {{"a", x}, {"b", y}}};
      },
      [](const auto& o) { return o[1].at("b"); });
  expect_average_through(
      [](auto x, auto y) {
        return std::map<std::string, List>{{"list", {x, y}}};
      },
      [](const auto& o) { return o.at("list")[1]; });
}

TEST(ParityOutputs, NestedOutputsWorkWithStaticGraph) {
  const auto expect_sums = [](const auto& box, const auto& sum) {
    using Box = std::decay_t<decltype(box)>;
    expect_average(
        2, {.static_graph = true}, [&] { return with_known_parameters(std::make_shared<BoxedImpl<Box>>(box)); },
        [&](auto& model, int rank, int step) {
          sum(model.forward(batch(rank, {4, 2}, step))).backward();
        });
  };
  expect_sums(
      [](auto x, auto y) { return std::tuple(x, std::tuple(x * 2, y * 3)); },
      [](const auto& o) { return (std::get<0>(o) * std::get<0>(std::get<1>(o)) * std::get<1>(std::get<1>(o))).sum(); });
  expect_sums(
      [](auto x, auto y) {
        return std::vector<List>{{x}, {x * 2, y * 3}};
      },
      [](const auto& o) { return (o[0][0] * o[1][0] * o[1][1]).sum(); });
  expect_sums(
      [](auto x, auto y) {
        return std::map<std::string, Map>{{"a", {{"x", x}}}, {"b", {{"c", y}}}};
      },
      [](const auto& o) { return (o.at("a").at("x") * o.at("b").at("c")).sum(); });
}

// A struct of the program, found through for_each_tensor().
struct Prediction {
  std::optional<at::Tensor> first;
  Map others;
};
template <typename F>
void for_each_tensor(const Prediction& prediction, F&& visit) {
  if (prediction.first) visit(*prediction.first);
  for (const auto& item : prediction.others) visit(item.second);
}

struct Features {
  at::Tensor a, b;
};

struct PredictorImpl : torch::nn::Module {
  explicit PredictorImpl(bool skip_first_) : skip_first(skip_first_) {
    for (int i = 0; i < 3; ++i) one->push_back(Linear(10, 10));
    for (int i = 0; i < 3; ++i) two->push_back(Linear(10, 10));
    register_module("one", one);
    register_module("two", two);
  }
  Prediction forward(const Features& features) {
    const at::Tensor x = features.a * features.b;
    Prediction result;
    if (!skip_first) result.first = torch::relu(one->forward(x));
    result.others = {{"a", two->forward(x)}, {"b", torch::relu(two->forward(x))}};
    return result;
  }
  bool skip_first;
  torch::nn::Sequential one, two;
};
TORCH_MODULE(Predictor);

TEST(ParityOutputs, StructsOfTheProgramGoInAndOutWithAndWithoutUnusedParameters) {
  for (const bool skip_first : kBoth) {
    expect_average(
        2, {.find_unused_parameters = true}, [&] { return with_known_parameters(Predictor(skip_first)); },
        [&](auto& model, int rank, int step) {
          const Features features{batch(rank, {4, 10}, step), batch(rank, {4, 10}, step + 1)};
          const Prediction out = model.forward(features);
          at::Tensor sum = out.others.at("a") + out.others.at("b");
          if (!skip_first) sum = sum + *out.first;
          torch::mse_loss(sum, at::ones_like(sum)).backward();
        });
  }
}

// The first output needs no gradient; the third is created in forward, or passed through from the previous step.
struct DetachingImpl : torch::nn::Module {
  DetachingImpl() {
    first = register_module("first", without_bias(10, 10));
    second = register_module("second", without_bias(10, 10));
  }
  std::tuple<at::Tensor, at::Tensor, Map> forward(const at::Tensor& input, const Map& state) {
    const at::Tensor x = second(torch::relu(first(input)));
    return {x.detach(), x.clone(), state.empty() ? Map{{"state", at::ones({1, 10})}} : state};
  }
  Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(Detaching);

TEST(ParityOutputs, SomeMayNeedNoGradient) {
  for (const bool find_unused : kBoth) {
    for (const bool static_graph : kBoth) {
      expect_average(
          2, {.broadcast_buffers = false, .find_unused_parameters = find_unused, .static_graph = static_graph},
          [] { return with_known_parameters(Detaching()); },
          [](auto& model, int rank, int step) {
            auto [detached, kept, state] = model.forward(batch(rank, {1, 10}, step), Map{});
            EXPECT_FALSE(detached.requires_grad());
            EXPECT_FALSE(state.at("state").requires_grad());
            if (step > 0) state = std::get<2>(model.forward(batch(rank, {1, 10}, step), state));
            (detached + kept * state.at("state")).sum().backward();
          });
    }
  }
}

struct TwoHeadsImpl : torch::nn::Module {
  TwoHeadsImpl() {
    register_module("left", left);
    register_module("right", right);
  }
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x) { return {left->forward(x), right->forward(x)}; }
  torch::nn::Sequential left{without_bias(2, 10), torch::nn::ReLU(), without_bias(10, 4)};
  torch::nn::Sequential right{without_bias(2, 10), torch::nn::ReLU(), without_bias(10, 4)};
};
TORCH_MODULE(TwoHeads);

TEST(ParityOutputs, EachOfTwoMayHaveABackwardOfItsOwn) {
  for (const bool view : kBoth) {
    expect_average(
        2, {.gradient_as_bucket_view = view}, [] { return with_known_parameters(TwoHeads()); },
        [](auto& model, int rank, int step) {
          auto [left, right] = model.forward(batch(rank, {4, 2}, step));
          left.pow(2).sum().backward();
          right.pow(3).sum().backward();
        });
  }
}

TEST(ParityOutputs, WithoutGradModeNoParameterGetsAGradient) {
  run_ranks(2, [](const Group& group) {
    TwoHeads net;
    DistributedDataParallel ddp(net, {.process_group = group});
    at::NoGradGuard no_grad;
    EXPECT_FALSE(std::get<0>(ddp.forward(batch(group->rank(), {4, 2}))).requires_grad());
    for (const at::Tensor& parameter : net->parameters()) {
      EXPECT_TRUE(parameter.requires_grad());
      EXPECT_FALSE(parameter.grad().defined());
    }
  });
}

// Uses the second layer on request.
struct ControlFlowImpl : torch::nn::Module {
  ControlFlowImpl() {
    first = register_module("first", without_bias(10, 10));
    second = register_module("second", without_bias(10, 10));
  }
  at::Tensor forward(const at::Tensor& x, bool with_second) {
    const at::Tensor y = torch::relu(first(x));
    return with_second ? second(y) : y;
  }
  Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(ControlFlow);

const auto control_flow = [] { return with_known_parameters(ControlFlow()); };

TEST(ParityUnused, ControlFlowMayChangeFromStepToStepOnAllRanks) {
  expect_average(
      3, {.find_unused_parameters = true}, control_flow,
      [](auto& model, int rank, int step) {
        model.forward(batch(rank, {4, 10}, step), step % 2 == 1).sum().backward();
      },
      "", 6);
  run_ranks(2, [](const Group& group) {
    ControlFlow net = control_flow();
    DistributedDataParallel ddp(net, {.process_group = group, .find_unused_parameters = true});
    for (int step = 0; step < 6; ++step) {
      ddp.forward(batch(group->rank(), {4, 10}, step), step % 2 == 1).sum().backward();
      EXPECT_EQ(ddp.logging_data().unused_parameters, step % 2 == 1 ? 0 : 1) << step;
    }
  });
}

TEST(ParityUnused, ControlFlowMayDifferBetweenRanks) {
  expect_average(
      3, {.find_unused_parameters = true}, control_flow,
      [](auto& model, int rank, int step) {
        model.forward(batch(rank, {4, 10}, step), step % 2 == 1 && rank == 1).sum().backward();
      },
      "", 6);
}

TEST(ParityUnused, WithoutASearchTheNextForwardNamesWhatGotNoGradientOnAllRanks) {
  const auto errors = errors_of_ranks(2, [](const Group& group) {
    ControlFlow net;
    DistributedDataParallel ddp(net, {.process_group = group});
    for (int step = 0; step < 2; ++step) ddp.forward(batch(group->rank(), {4, 10}), false).sum().backward();
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("got no gradient"), HasSubstr("\"second.weight\""), Not(HasSubstr("first")),
                             HasSubstr("find_unused_parameters"), HasSubstr("every output of forward() must")));
  }
}

TEST(ParityUnused, AStepThatUsesLessThanTheStaticGraphIsAnError) {
  const auto errors = errors_of_ranks(2, [](const Group& group) {
    ControlFlow net;
    DistributedDataParallel ddp(net, {.process_group = group, .static_graph = true});
    for (int step = 0; step < 4; ++step) ddp.forward(batch(group->rank(), {4, 10}), step == 0).sum().backward();
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("\"second.weight\""));
}

TEST(ParityUnused, AStepThatUsesMoreThanTheStaticGraphIsAnError) {
  const auto errors = errors_of_ranks(2, [](const Group& group) {
    ControlFlow net;
    DistributedDataParallel ddp(net, {.process_group = group, .static_graph = true});
    for (int step = 0; step < 4; ++step) ddp.forward(batch(group->rank(), {4, 10}), step > 0).sum().backward();
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("\"second.weight\""));
}

TEST(ParityUnused, DifferentGraphsOnTheRanksGiveTheSameResultWithASearchAndWithStaticGraph) {
  const auto pass = [](auto& model, int rank, int step) {
    model.forward(batch(rank, {4, 10}, step), rank == 0).sum().backward();
  };
  for (const bool static_graph : kBoth) {
    const DdpOptions options{
        .find_unused_parameters = !static_graph, .static_graph = static_graph, .gradient_as_bucket_view = true};
    expect_average(2, options, control_flow, pass, "", 5);
    run_ranks(2, [&](const Group& group) {
      ControlFlow net = control_flow();
      DdpOptions mine = options;
      mine.process_group = group;
      DistributedDataParallel ddp(net, mine);
      for (int step = 0; step < 3; ++step) pass(ddp, group->rank(), step);
      EXPECT_EQ(ddp.logging_data().buckets_rebuilt, static_graph);
    });
  }
}

// Rank 0 uses the first task, the others the second, and none the third.
struct TasksImpl : torch::nn::Module {
  TasksImpl() {
    for (const char* name : {"zero", "one", "none"}) tasks.push_back(register_parameter(name, at::ones({2, 2})));
  }
  at::Tensor forward(const at::Tensor& x, int rank) { return tasks[rank == 0 ? 0 : 1] + x; }
  Tensors tasks;
};
TORCH_MODULE(Tasks);

TEST(ParityUnused, WhatAnyRankUsedGetsAGradientAndWhatNoRankUsedDoesNot) {
  for (const bool view : kBoth) {
    for (const bool static_graph : kBoth) {
      expect_average(
          3, {.find_unused_parameters = true, .static_graph = static_graph, .gradient_as_bucket_view = view},
          [] { return Tasks(); },
          [](auto& model, int rank, int) {
            model.forward(at::full({2, 2}, 8.0), rank).mean().backward();
          });
    }
  }
}

TEST(ParityUnused, ASearchThatFindsNothingOnOneRankStillHelpsTheOtherRanks) {
  expect_average(3, {.find_unused_parameters = true}, control_flow, [](auto& model, int rank, int step) {
    model.forward(batch(rank, {4, 10}, step), rank == 0).mean().backward();
  });
}

// The bias has two names; neither is used.
struct SharedBiasImpl : torch::nn::Module {
  SharedBiasImpl() {
    one = register_module("one", without_bias(10, 5));
    bias = register_parameter("bias", at::zeros({5}));
    one->register_parameter("bias_again", bias);
    two = register_module("two", Linear(10, 5));
  }
  at::Tensor forward(const at::Tensor& x) { return two(x).sum(); }
  Linear one{nullptr}, two{nullptr};
  at::Tensor bias;
};
TORCH_MODULE(SharedBias);

TEST(ParityUnused, ASharedParameterMayBeUnused) {
  for (const bool static_graph : kBoth) {
    expect_average(
        2, {.find_unused_parameters = true, .static_graph = static_graph},
        [] { return with_known_parameters(SharedBias()); },
        [](auto& model, int rank, int step) {
          at::Tensor loss = model.forward(batch(rank, {20, 10}, step));
          loss /= 10;  // in place, over the output itself
          loss.backward();
        },
        "", 6);
  }
}

TEST(ParityUnused, OutputsMayBeIgnoredBeforeTheFirstBackward) {
  for (const bool with_second : kBoth) {
    run_ranks(2, [&](const Group& group) {
      ControlFlow net = control_flow();
      DistributedDataParallel ddp(net, {.process_group = group, .find_unused_parameters = !with_second});
      for (int step = 0; step < 4; ++step) ddp.forward(batch(group->rank(), {4, 10}, step), with_second);
      const auto pass = [&](auto& model, int rank, int step) {
        model.forward(batch(rank, {4, 10}, step), with_second).pow(2).mean().backward();
      };
      for (int step = 0; step < 4; ++step) {
        drop_gradients(net->parameters());
        pass(ddp, group->rank(), step);
        expect_gradients(gradients(net->parameters()), average_of_plain_models(2, control_flow, pass, step), "");
      }
    });
  }
}

// The caller applies the last layer, outside of forward.
struct HandingOutImpl : torch::nn::Module {
  HandingOutImpl() {
    body = register_module("body", without_bias(2, 4));
    head = register_module("head", without_bias(4, 4));
  }
  at::Tensor forward(const at::Tensor& x) { return torch::relu(body(x)); }
  Linear body{nullptr}, head{nullptr};
};
TORCH_MODULE(HandingOut);

TEST(ParityUnused, ALayerUsedOutsideOfForwardIsAnErrorWithASearchAndWorksWithout) {
  for (const bool view : kBoth) {
    const auto train = [&](const Group& group, bool find_unused) {
      HandingOut net = with_known_parameters(HandingOut());
      DistributedDataParallel ddp(
          net, {.process_group = group, .find_unused_parameters = find_unused, .gradient_as_bucket_view = view});
      net->head(ddp.forward(batch(group->rank(), {4, 2}))).sum().backward();
      const auto plain = [](HandingOutImpl& model, int rank, int) {
        model.head(model.forward(batch(rank, {4, 2}))).sum().backward();
      };
      expect_gradients(gradients(net->parameters()),
                       average_of_plain_models(
                           2, [] { return with_known_parameters(HandingOut()); }, plain, 0),
                       "");
    };
    for (const std::string& error : errors_of_ranks(2, [&](const Group& group) { train(group, true); })) {
      EXPECT_THAT(error, AllOf(HasSubstr("\"head.weight\""), HasSubstr("an unexpected gradient")));
    }
    run_ranks(2, [&](const Group& group) { train(group, false); });
  }
}

struct InnerImpl : torch::nn::Module {
  InnerImpl() {
    embedding = register_module("embedding", torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 10).sparse(true)));
    norm = register_module("norm", torch::nn::BatchNorm1d(2));
    used = register_module("used", without_bias(2, 10));
    unused = register_module("unused", Linear(10, 10));
  }
  at::Tensor forward(const at::Tensor& x) { return used(norm(x)); }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  Linear used{nullptr}, unused{nullptr};
};
TORCH_MODULE(Inner);

struct OuterImpl : torch::nn::Module {
  OuterImpl() { inner = register_module("inner", Inner()); }
  at::Tensor forward(const at::Tensor& x) { return inner->forward(x); }
  Inner inner{nullptr};
};
TORCH_MODULE(Outer);

TEST(ParityUnused, NestedParametersAreNamedInFullAndIgnoredOnesAreNot) {
  for (const bool ignore : kBoth) {
    const auto errors = errors_of_ranks(2, [&](const Group& group) {
      Outer net;
      DdpOptions options{.process_group = group};
      if (ignore) options.parameters_to_ignore = {"inner.embedding.weight"};
      DistributedDataParallel ddp(net, options);
      for (int step = 0; step < 2; ++step) ddp.forward(batch(group->rank(), {10, 2})).sum().backward();
    });
    const auto embedding = HasSubstr("\"inner.embedding.weight\"");
    for (const std::string& error : errors) {
      EXPECT_THAT(error, AllOf(HasSubstr("\"inner.unused.weight\""), HasSubstr("\"inner.unused.bias\""),
                               Not(HasSubstr("norm")), Not(HasSubstr("inner.used"))));
      if (ignore) {
        EXPECT_THAT(error, AllOf(HasSubstr("2 of 5 parameters"), Not(embedding)));
      } else {
        EXPECT_THAT(error, AllOf(HasSubstr("3 of 6 parameters"), embedding));
      }
    }
  }
}

// Evaluation of a model without buffers communicates with no rank, with gradients or without.
TEST(ParityModels, OneRankAloneMayRunInference) {
  run_ranks(2, [](const Group& group) {
    TwoHeads net = with_known_parameters(TwoHeads());
    DistributedDataParallel ddp(net, {.process_group = group});
    if (group->rank() == 0) {
      net->eval();
      for (int step = 0; step < 6; ++step) {
        const at::Tensor x = batch(0, {10, 2}, step);
        EXPECT_TRUE(at::equal(std::get<0>(ddp.forward(x)), net->left->forward(x)));
      }
      net->train();
    }
    auto [left, right] = ddp.forward(batch(group->rank(), {4, 2}));
    (left.sum() + right.sum()).backward();
    ddp.verify_in_sync();
  });
}

TEST(ParityModels, DifferentNumbersOfParametersAreNamedOnAllRanks) {
  const auto errors = errors_of_ranks(3, [](const Group& group) {
    torch::nn::Sequential net(Linear(2, 2));
    if (group->rank() == 1) net->push_back(Linear(2, 3));
    DistributedDataParallel ddp(net, {.process_group = group});
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("models differ"), HasSubstr("rank 1 has parameter \"1.weight\""),
                             HasSubstr("rank 0 has nothing more")));
  }
}

TEST(ParityModels, AModuleWithoutParametersIsRefused) {
  const auto errors = errors_of_ranks(2, [](const Group& group) {
    torch::nn::Identity net;
    DistributedDataParallel ddp(net, {.process_group = group});
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("no parameter of this module requires"));
}

}  // namespace
}  // namespace lockstep::testing
