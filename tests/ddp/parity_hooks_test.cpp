// PyTorch's tests of DDP's hooks and of its logging data: pytorch_parity.md has the list.
#include "ddp/parity.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using torch::nn::Linear;

TEST(ParityLogging, DataDescribesTheModelTheGroupAndTheLastStep) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Sequential net(Linear(2, 10), Linear(10, 50), Linear(50, 4));
    DistributedDataParallel ddp(net, {.process_group = group});
    std::int64_t bytes = 0;
    for (const at::Tensor& parameter : net->parameters()) bytes += static_cast<std::int64_t>(parameter.nbytes());
    EXPECT_EQ(ddp.logging_data().steps, 0);
    for (int step = 0; step < 18; ++step) ddp.forward(batch(group->rank(), {4, 2}, step)).sum().backward();
    const DdpLoggingData& data = ddp.logging_data();
    EXPECT_EQ(data.world_size, 2);
    EXPECT_EQ(data.rank, group->rank());
    EXPECT_EQ(data.backend, group->backend());
    EXPECT_EQ(data.comm_hook, "");
    EXPECT_FALSE(data.find_unused_parameters);
    EXPECT_FALSE(data.static_graph);
    EXPECT_EQ(data.parameter_count, 6);
    EXPECT_EQ(data.parameter_bytes, bytes);
    EXPECT_EQ(data.bucket_bytes, std::vector<std::int64_t>{bytes});
    EXPECT_TRUE(data.buckets_rebuilt);
    EXPECT_EQ(data.unused_parameters, 0);
    EXPECT_EQ(data.steps, 18);
    EXPECT_GT(data.forward_seconds, 0);
    EXPECT_GT(data.backward_compute_seconds, 0);
    EXPECT_GT(data.backward_communication_seconds, 0);
    EXPECT_LE(data.overlap_seconds, data.backward_compute_seconds);
    EXPECT_LE(data.overlap_seconds, data.backward_communication_seconds);
    EXPECT_GE(data.exposed_communication_seconds, 0);
    EXPECT_THAT(to_string(data), HasSubstr("6 gradients"));

    torch::nn::Sequential mixed(Linear(1000, 200), Linear(200, 500));
    mixed[0]->to(at::kDouble);
    DistributedDataParallel larger(mixed, {.process_group = group, .bucket_cap_mb = 0.5, .first_bucket_mb = 0.5});
    const std::int64_t floats = 500 * 4 + 200 * 500 * 4, doubles = 200 * 8;
    EXPECT_THAT(larger.logging_data().bucket_bytes,
                ::testing::UnorderedElementsAre(floats, doubles, 1000 * 200 * 8));  // the last is reduced in place
  });
}

std::vector<std::pair<const char*, std::shared_ptr<CommHook>>> built_in_hooks() {
  return {{"all_reduce", all_reduce_hook()},
          {"fp16", fp16_compress_hook()},
          {"bf16", bf16_compress_hook()},
          {"int8", int8_compress_hook()},
          {"power_sgd", power_sgd_hook({.start_iteration = 2})},
          {"power_sgd without memory",
           power_sgd_hook({.start_iteration = 0, .use_error_feedback = false, .warm_start = false})}};
}

struct ShiftImpl : torch::nn::Module {
  ShiftImpl() { weight = register_parameter("weight", at::ones({2, 2})); }
  at::Tensor forward(double x) { return weight + x; }
  at::Tensor weight;
};
TORCH_MODULE(Shift);

// Gradients that every hook can represent: the average must be exact.
TEST(ParityHooks, EveryBuiltInHookAveragesWithViewsAndStaticGraph) {
  for (const bool view : kBoth) {
    for (const bool static_graph : kBoth) {
      for (std::size_t i = 0; i < built_in_hooks().size(); ++i) {
        run_ranks(2, [&](const Group& group) {
          Shift net;
          DistributedDataParallel ddp(
              net, {.process_group = group, .static_graph = static_graph, .gradient_as_bucket_view = view});
          const auto [name, hook] = built_in_hooks()[i];
          ddp.register_comm_hook(hook);
          EXPECT_EQ(ddp.logging_data().comm_hook, hook->name());
          for (int step = 0; step < 4; ++step) {
            drop_gradients({net->weight});
            ddp.forward(8.0 + group->rank()).mean().backward();
            EXPECT_TRUE(at::allclose(net->weight.grad(), at::full({2, 2}, 0.25), 1e-2, 1e-3))
                << name << " step " << step << '\n'
                << net->weight.grad();
          }
        });
      }
    }
  }
}

TEST(ParityHooks, AHookThatCompletesAtOnceSetsTheGradients) {
  for (const bool view : kBoth) {
    run_ranks(2, [&](const Group& group) {
      Shift net;
      DistributedDataParallel ddp(net, {.process_group = group, .gradient_as_bucket_view = view});
      ddp.register_comm_hook(make_comm_hook("ones", [](const GradBucket& bucket, ProcessGroup&) {
        bucket.buffer().fill_(1);
        return HookFuture({}, [buffer = bucket.buffer()] {
          buffer.add_(1);
          return HookFuture();
        });
      }));
      ddp.forward(8.0).mean().backward();
      EXPECT_TRUE((net->weight.grad() == 2).all().item<bool>());
    });
  }
}

TEST(ParityHooks, OnlyTheLastBucketIsMarkedAsLast) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Sequential net(without_bias(2, 600));
    for (int i = 0; i < 4; ++i) net->push_back(without_bias(600, 600));
    DistributedDataParallel ddp(net, {.process_group = group});
    std::vector<bool> last;
    std::vector<std::size_t> indices;
    ddp.register_comm_hook(make_comm_hook("witness", [&](const GradBucket& bucket, ProcessGroup&) {
      last.push_back(bucket.is_last());
      indices.push_back(bucket.index());
      EXPECT_EQ(bucket.gradients().size(), bucket.parameters().size());
      return HookFuture();
    }));
    for (int step = 0; step < 2; ++step) {
      last.clear();
      indices.clear();
      ddp.forward(batch(group->rank(), {3, 2})).sum().backward();
      ASSERT_EQ(last.size(), ddp.logging_data().bucket_bytes.size());
      ASSERT_GT(last.size(), 1U);
      for (std::size_t i = 0; i < last.size(); ++i) {
        EXPECT_EQ(last[i], i + 1 == last.size());
        EXPECT_EQ(indices[i], i);
      }
    }
  });
}

TEST(ParityHooks, AreRegisteredOnceAndNotNull) {
  run_ranks(2, [](const Group& group) {
    Shift net;
    DistributedDataParallel ddp(net, {.process_group = group});
    EXPECT_THROW(ddp.register_comm_hook(nullptr), Error);
    ddp.register_comm_hook(all_reduce_hook());
    EXPECT_THROW(ddp.register_comm_hook(all_reduce_hook()), Error);
    ddp.forward(1.0).mean().backward();
  });
}

TEST(ParityHooks, WhatAHookThrowsIsThrownByBackwardOnAllRanks) {
  for (const bool in_continuation : kBoth) {
    const auto errors = errors_of_ranks(2, [&](const Group& group) {
      Shift net;
      DistributedDataParallel ddp(net, {.process_group = group});
      ddp.register_comm_hook(make_comm_hook("broken", [&](const GradBucket&, ProcessGroup&) {
        if (!in_continuation) throw std::runtime_error("a broken hook");
        return HookFuture({}, []() -> HookFuture { throw std::runtime_error("a broken hook"); });
      }));
      ddp.forward(1.0).mean().backward();
    });
    for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("a broken hook"));
  }
}

}  // namespace
}  // namespace lockstep::testing
