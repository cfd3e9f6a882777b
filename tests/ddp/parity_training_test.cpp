// PyTorch's tests of DDP that train, accumulate and checkpoint: pytorch_parity.md has the list.
#include "ddp/model_fuzz/replay.h"
#include "ddp/parity.h"

namespace lockstep::testing {
namespace {

using fuzz::checkpoint;
using ::testing::HasSubstr;
using torch::nn::Linear;

torch::nn::Sequential small_mlp() {
  return with_known_parameters(
      torch::nn::Sequential(Linear(2, 10), torch::nn::ReLU(), Linear(10, 50), torch::nn::ReLU(), Linear(50, 4)));
}

void step_down(const Tensors& parameters) {
  at::NoGradGuard no_grad;
  for (at::Tensor parameter : parameters) parameter.sub_(parameter.grad(), 0.1);
}

TEST(ParityTraining, EqualsOneProcessWithEveryKindOfBucket) {
  for (const bool view : kBoth) {
    for (const bool static_graph : kBoth) {
      for (const double cap : {0.000001, 0.001, 25.0}) {
        auto alone = small_mlp();
        std::vector<Tensors> expected;
        for (int step = 0; step < 5; ++step) {
          drop_gradients(alone->parameters());
          torch::mse_loss(alone->forward(at::cat({batch(0, {2, 2}, step), batch(1, {2, 2}, step)})), at::ones({4, 4}))
              .backward();
          step_down(alone->parameters());
          expected.emplace_back();
          for (const at::Tensor& parameter : alone->parameters()) expected.back().push_back(parameter.detach().clone());
        }
        run_ranks(2, [&](const Group& group) {
          auto net = small_mlp();
          DistributedDataParallel ddp(net, {.process_group = group,
                                            .bucket_cap_mb = cap,
                                            .first_bucket_mb = cap,
                                            .static_graph = static_graph,
                                            .gradient_as_bucket_view = view});
          for (int step = 0; step < 5; ++step) {
            for (const at::Tensor& gradient : gradients(net->parameters())) {  // as optimizers that keep the memory do
              if (gradient.defined()) gradient.detach_().zero_();
            }
            torch::mse_loss(ddp.forward(batch(group->rank(), {2, 2}, step)), at::ones({2, 4})).backward();
            step_down(net->parameters());
            expect_close(net->parameters(), expected[static_cast<std::size_t>(step)]);
          }
        });
      }
    }
  }
}

// Odd iterations synchronise what the even ones before them have accumulated.
void expect_accumulation(const std::shared_ptr<CommHook>& hook, const DdpOptions& options) {
  Tensors expected[4];
  auto alone = small_mlp();
  for (int step = 0; step < 4; ++step) {
    for (int rank = 0; rank < 2; ++rank) {
      (torch::mse_loss(alone->forward(batch(rank, {1, 2}, step)), at::zeros({1, 4})) / 2).backward();
    }
    for (const at::Tensor& gradient : gradients(alone->parameters())) expected[step].push_back(gradient.clone());
  }
  run_ranks(2, [&](const Group& group) {
    auto net = small_mlp();
    DdpOptions mine = options;
    mine.process_group = group;
    DistributedDataParallel ddp(net, mine);
    if (hook) ddp.register_comm_hook(hook);
    const auto pass = [&](int step) {
      torch::mse_loss(ddp.forward(batch(group->rank(), {1, 2}, step)), at::zeros({1, 4})).backward();
    };
    {
      at::NoGradGuard no_grad;
      const auto guard = ddp.no_sync();
      ddp.forward(batch(0, {1, 2}));
    }
    for (int step = 0; step < 4; ++step) {
      if (step % 2 == 0) {
        const auto guard = ddp.no_sync();
        pass(step);
        EXPECT_FALSE(at::allclose(net->parameters()[0].grad(), expected[step][0])) << "synchronised under no_sync()";
      } else {
        pass(step);
        expect_gradients(gradients(net->parameters()), expected[step], "step " + std::to_string(step));
      }
    }
  });
}

TEST(ParityTraining, AccumulatesUnderNoSyncWhateverTheOptions) {
  for (const bool view : kBoth) {
    expect_accumulation(nullptr, {.bucket_cap_mb = 0.001, .gradient_as_bucket_view = view});
    expect_accumulation(nullptr, {.find_unused_parameters = true, .gradient_as_bucket_view = view});
    expect_accumulation(nullptr, {.static_graph = true, .gradient_as_bucket_view = view});
  }
}

TEST(ParityTraining, AccumulatesUnderNoSyncWithHooks) {
  expect_accumulation(make_comm_hook("average",
                                     [](const GradBucket& bucket, ProcessGroup& group) {
                                       return HookFuture(group.all_reduce(bucket.buffer().div_(group.size()), {}));
                                     }),
                      {.bucket_cap_mb = 0.001});
  expect_accumulation(make_comm_hook("twice and back",
                                     [](const GradBucket& bucket, ProcessGroup& group) {
                                       const at::Tensor buffer = bucket.buffer();
                                       const int size = group.size();
                                       const auto divide = [buffer, size] {
                                         buffer.div_(2 * size);
                                         return HookFuture();
                                       };
                                       return HookFuture({group.all_reduce(buffer, {})}, [buffer, divide] {
                                         buffer.mul_(2);
                                         return HookFuture({}, divide);
                                       });
                                     }),
                      {.bucket_cap_mb = 0.001});
}

// `times` segments over the second layer.
struct SegmentsImpl : torch::nn::Module {
  explicit SegmentsImpl(int times_, bool shared = false) : times(times_) {
    first = register_module("first", Linear(8, 8));
    second = register_module("second", Linear(8, 8));
    if (shared) second->weight = second->register_parameter("shared", first->weight);
  }
  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = first(input);
    for (int i = 0; i < times; ++i) x = checkpoint([this](const at::Tensor& y) { return second(y); }, x);
    return x;
  }
  int times;
  Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(Segments);

// One layer's weight under two names.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    weight = register_parameter("weight", at::zeros({8, 8}));
    first_bias = register_parameter("first_bias", at::zeros({8}));
    second_bias = register_parameter("second_bias", at::zeros({8}));
    register_parameter("again", weight);
  }
  at::Tensor forward(const at::Tensor& x) {
    return torch::linear(torch::linear(x, weight, first_bias), weight, second_bias);
  }
  at::Tensor weight, first_bias, second_bias;
};
TORCH_MODULE(Tied);

const auto squares = [](auto& model, int rank, int step) {
  torch::mse_loss(model.forward(batch(rank, {4, 8}, step).requires_grad_()), at::ones({4, 8})).backward();
};

TEST(ParityCheckpointing, OneSegmentGivesTheGradientsOfPlainModels) {
  for (const bool view : kBoth) {
    for (const bool static_graph : kBoth) {
      for (const bool find_unused : kBoth) {
        if (find_unused && !static_graph) continue;  // the next test
        expect_average(
            2, {.find_unused_parameters = find_unused, .static_graph = static_graph, .gradient_as_bucket_view = view},
            [] { return with_known_parameters(Segments(1)); }, squares);
      }
    }
  }
}

TEST(ParityCheckpointing, ASearchForUnusedParametersDoesNotSeeIntoSegmentsAndReportsIt) {
  const auto errors = errors_of_ranks(2, [](const Group& group) {
    Segments net(1);
    DistributedDataParallel ddp(net, {.process_group = group, .find_unused_parameters = true});
    for (int step = 0; step < 2; ++step) squares(ddp, group->rank(), step);
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("static_graph"));
}

TEST(ParityCheckpointing, TwoSegmentsGiveTheGradientsOfPlainModelsWithStaticGraph) {
  for (const bool view : kBoth) {
    for (const bool shared : kBoth) {
      expect_average(
          2, {.static_graph = true, .gradient_as_bucket_view = view},
          [shared] { return with_known_parameters(Segments(2, shared)); }, squares);
    }
  }
}

TEST(ParityCheckpointing, TwoSegmentsWithoutStaticGraphAreAnError) {
  for (const bool find_unused : kBoth) {
    const auto errors = errors_of_ranks(2, [&](const Group& group) {
      Segments net(2);
      DistributedDataParallel ddp(net, {.process_group = group, .find_unused_parameters = find_unused});
      for (int step = 0; step < 2; ++step) squares(ddp, group->rank(), step);
    });
    for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("static_graph"));
  }
}

// DDP's forward runs inside of backward.
TEST(ParityCheckpointing, TheWholeModelMayBeOneSegment) {
  for (const bool view : kBoth) {
    for (const bool static_graph : kBoth) {
      expect_average(
          2, {.static_graph = static_graph, .gradient_as_bucket_view = view},
          [] { return with_known_parameters(Tied()); },
          [](auto& model, int rank, int step) {
            const at::Tensor output = checkpoint([&model](const at::Tensor& x) { return model.forward(x); },
                                                 batch(rank, {4, 8}, step).requires_grad_());
            torch::mse_loss(output, at::ones({4, 8})).backward();
          });
    }
  }
}

// The two weights are one tensor of 4 MiB, used twice.
struct TwiceImpl : torch::nn::Module {
  TwiceImpl() {
    weight = register_parameter("weight", at::zeros({1 << 20}));
    register_parameter("again", weight);
  }
  at::Tensor forward(double factor) { return (weight * factor + 1) + weight * factor; }
  at::Tensor weight;
};
TORCH_MODULE(Twice);

TEST(ParityTraining, ALargeSharedWeightGetsTheSumOfItsUses) {
  for (const bool view : kBoth) {
    expect_average(
        3, {.bucket_cap_mb = 1, .gradient_as_bucket_view = view}, [] { return with_known_parameters(Twice()); },
        [](auto& model, int rank, int) { model.forward(rank + 1.0).sum().backward(); });
  }
}

struct ConvolutionsImpl : torch::nn::Module {
  ConvolutionsImpl(std::vector<at::MemoryFormat> formats_, const std::vector<at::ScalarType>& types)
      : formats(std::move(formats_)) {
    const std::vector<std::int64_t> channels = {8, 16, 128, 256, 8};  // the third weight has more than 1 MiB
    for (std::size_t i = 0; i < formats.size(); ++i) {
      layers.push_back(
          register_module("layer" + std::to_string(i),
                          torch::nn::Conv2d(torch::nn::Conv2dOptions(channels[i], channels[i + 1], i == 2 ? 3 : 2))));
      layers[i]->to(types[i]);
      layers[i]->weight.set_data(layers[i]->weight.detach().contiguous(formats[i]));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& layer : layers) x = layer(x.to(layer->weight.scalar_type()));
    return x;
  }
  std::vector<at::MemoryFormat> formats;
  std::vector<torch::nn::Conv2d> layers;
};
TORCH_MODULE(Convolutions);

TEST(ParityTraining, GradientsHaveTheirParametersLayout) {
  constexpr auto kPlain = at::MemoryFormat::Contiguous, kLast = at::MemoryFormat::ChannelsLast;
  const std::vector<std::vector<at::MemoryFormat>> all_formats = {
      {kPlain, kPlain, kPlain, kPlain}, {kLast, kLast, kPlain, kPlain}, {kLast, kLast, kLast, kLast}};
  for (const auto& formats : all_formats) {
    for (const at::ScalarType second : {at::kFloat, at::kDouble}) {
      for (const double cap : {0.000001, 25.0}) {
        const auto make = [&] {
          return with_known_parameters(Convolutions(formats, std::vector{at::kFloat, at::kFloat, second, second}));
        };
        const auto pass = [](auto& model, int rank, int step) {
          model.forward(batch(rank, {2, 8, 6, 6}, step)).to(at::kFloat).pow(2).mean().backward();
        };
        std::vector<Tensors> expected;
        for (int step = 0; step < 3; ++step) expected.push_back(average_of_plain_models(2, make, pass, step));
        run_ranks(2, [&](const Group& group) {
          auto net = make();
          DistributedDataParallel ddp(net, {.process_group = group, .bucket_cap_mb = cap, .first_bucket_mb = cap});
          for (int step = 0; step < 3; ++step) {
            drop_gradients(net->parameters());
            pass(ddp, group->rank(), step);
            expect_gradients(gradients(net->parameters()), expected[static_cast<std::size_t>(step)],
                             "cap " + std::to_string(cap));
            for (std::size_t i = 0; i < formats.size(); ++i) {
              EXPECT_TRUE(net->layers[i]->weight.grad().is_contiguous(formats[i])) << "layer " << i;
            }
          }
        });
      }
    }
  }
}

struct HalfImpl : torch::nn::Module {
  HalfImpl() { weight = register_parameter("weight", at::ones({1}, at::kHalf)); }
  at::Tensor forward(const at::Tensor& x) { return weight * x; }
  at::Tensor weight;
};
TORCH_MODULE(Half);

// The sum of the gradients does not fit 16 bits; their average does.
TEST(ParityTraining, HalfPrecisionGradientsDoNotOverflow) {
  for (const bool view : kBoth) {
    run_ranks(3, [&](const Group& group) {
      Half net;
      DistributedDataParallel ddp(net, {.process_group = group, .gradient_as_bucket_view = view});
      ddp.forward(at::full({1}, 32768.0, at::kHalf)).backward();
      EXPECT_EQ(net->weight.grad().item<float>(), 32768.0F);
    });
  }
}

struct SequencesImpl : torch::nn::Module {
  SequencesImpl() { lstm = register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(4, 2).batch_first(true))); }
  std::tuple<at::Tensor, std::tuple<at::Tensor, at::Tensor>> forward(const torch::nn::utils::rnn::PackedSequence& x) {
    auto [output, state] = lstm->forward_with_packed_input(x);
    return {output.data(), state};
  }
  torch::nn::LSTM lstm{nullptr};
};
TORCH_MODULE(Sequences);

TEST(ParityTraining, AnLstmOverPackedSequences) {
  expect_average(
      2, {}, [] { return with_known_parameters(Sequences()); },
      [](auto& model, int rank, int step) {
        const auto packed = torch::nn::utils::rnn::pack_padded_sequence(
            batch(rank, {3, 5, 4}, step), torch::tensor({5, 3, 1}, at::kLong), /*batch_first=*/true);
        auto [data, state] = model.forward(packed);
        (data.sum() + std::get<0>(state).sum()).backward();
      });
}

struct FailingBackward : torch::autograd::Function<FailingBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list) {
    throw std::runtime_error("the program's own");
  }
};

// The error happens after all gradients, before the end of backward.
TEST(ParityTraining, AModelWhoseBackwardFailedCanBeWrappedAgain) {
  run_ranks(2, [](const Group& group) {
    const auto second = group->new_group(std::vector<int>{0, 1}, "second");
    const auto third = group->new_group(std::vector<int>{0, 1}, "third");
    auto net = small_mlp();
    const at::Tensor x = batch(group->rank(), {2, 2}).requires_grad_();
    {
      DistributedDataParallel ddp(net, {.process_group = second});
      EXPECT_THROW(ddp.forward(FailingBackward::apply(x)).sum().backward(), std::exception);
    }
    drop_gradients(net->parameters());
    DistributedDataParallel ddp(net, {.process_group = third});
    const auto pass = [](auto& model, int rank, int) { model.forward(batch(rank, {2, 2})).sum().backward(); };
    pass(ddp, group->rank(), 0);
    expect_gradients(gradients(net->parameters()), average_of_plain_models(2, small_mlp, pass, 0), "wrapped again");
  });
}

struct TensorHooksImpl : torch::nn::Module {
  TensorHooksImpl() { layer = register_module("layer", Linear(2, 2)); }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = layer(torch::relu(x));
    y.register_hook([](const at::Tensor& gradient) { return torch::celu(gradient); });
    return torch::gelu(y);
  }
  Linear layer{nullptr};
};
TORCH_MODULE(TensorHooks);

TEST(ParityTraining, TensorHooksOfTheProgramActBeforeTheAverage) {
  expect_average(
      2, {},
      [] {
        TensorHooks net = with_known_parameters(TensorHooks());
        net->layer->weight.register_hook([](const at::Tensor& gradient) { return gradient * 3; });
        return net;
      },
      [](auto& model, int rank, int step) {
        model.forward(batch(rank, {5, 2}, step)).sum().backward();
      });
}

TEST(ParityTraining, ParametersWithoutElements) {
  for (const bool view : kBoth) {
    expect_average(
        2, {.gradient_as_bucket_view = view},
        [] { return with_known_parameters(torch::nn::Sequential(Linear(10, 10), torch::nn::ReLU(), Linear(10, 0))); },
        [](auto& model, int rank, int step) {
          const at::Tensor x = batch(rank, {3, 10}, step).requires_grad_();
          model.forward(x).sum().backward();
        });
  }
}

TEST(ParityTraining, TwoForwardsAndOneBackward) {
  for (const bool static_graph : kBoth) {
    for (const bool find_unused : kBoth) {
      expect_average(
          2, {.find_unused_parameters = find_unused, .static_graph = static_graph}, [] { return small_mlp(); },
          [](auto& model, int rank, int step) {
            const at::Tensor a = model.forward(batch(rank, {2, 2}, step));
            const at::Tensor b = model.forward(batch(rank, {2, 2}, step + 1));
            (a.sum() + b.pow(2).sum()).backward();
          });
    }
  }
}

TEST(ParityTraining, ADdpOverASubgroupAveragesOverItsRanksOnly) {
  run_ranks(4, [](const Group& world) {
    const bool even = world->rank() % 2 == 0;
    const Group half = world->new_group(even ? std::vector<int>{0, 2} : std::vector<int>{1, 3}, even ? "even" : "odd");
    Linear net(torch::nn::LinearOptions(1, 1).bias(false)), hooked(torch::nn::LinearOptions(1, 1).bias(false));
    DistributedDataParallel ddp(net, {.process_group = half}), with_hook(hooked, {.process_group = half});
    with_hook.register_comm_hook(all_reduce_hook());
    for (int step = 0; step < 3; ++step) {
      drop_gradients({net->weight, hooked->weight});
      ddp.forward(at::full({1, 1}, double(world->rank()))).sum().backward();
      with_hook.forward(at::full({1, 1}, double(world->rank()))).sum().backward();
      EXPECT_EQ(net->weight.grad().item<float>(), even ? 1.0F : 2.0F);
      EXPECT_EQ(hooked->weight.grad().item<float>(), even ? 1.0F : 2.0F);
    }
    EXPECT_EQ(ddp.logging_data().world_size, 2);
  });
}

}  // namespace
}  // namespace lockstep::testing
