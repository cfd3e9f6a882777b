// DDP on GPUs over NCCL, one process per GPU. Each test prints why it skips if there is no NCCL or no second GPU; the
// error for a program that asks for NCCL without having it is tested everywhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <iostream>

#include "ddp/backends/registry.h"
#include "lockstep/lockstep.h"
#include "support/process_set.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kRanks = 2;

// Empty, or why NCCL cannot be tested here.
std::string why_not() {
  const std::size_t gpus = torch::cuda::is_available() ? torch::cuda::device_count() : 0;
  if (gpus < kRanks)
    return "NCCL is tested with " + std::to_string(kRanks) + " GPUs, there are " + std::to_string(gpus);
  return detail::check_backend("nccl").message();
}

#define LOCKSTEP_SKIP_WITHOUT_NCCL() \
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason

void run_role(const char* role, const StartOptions& options = {}) {
  ProcessSet ranks = start_ranks(kRanks, role, options);
  ASSERT_TRUE(ranks.wait_all(in_seconds(110))) << ranks.report();
  EXPECT_TRUE(ranks.all_succeeded()) << ranks.report();
}

// In a role: false values end the process with the line's number.
#define REQUIRE_TRUE(condition)                                        \
  if (!(condition)) {                                                  \
    std::cerr << __LINE__ << ": " << #condition << " does not hold\n"; \
    return 1;                                                          \
  }

LOCKSTEP_PROCESS_ROLE(asks_for_nccl) {
  try {
    ProcessGroupScope job({.backend = "nccl"});
  } catch (const Error& error) {
    std::cout << "refused: " << error.what() << '\n';
    return 0;
  }
  return 1;
}

TEST(NcclErrors, AnUnavailableBackendIsReportedWithTheReasonAndTheAlternatives) {
  if (torch::cuda::is_available()) GTEST_SKIP() << "there is a GPU";
  ProcessSet ranks = start_ranks(1, "asks_for_nccl");
  ASSERT_TRUE(ranks.wait_all(in_seconds(60))) << ranks.report();
  EXPECT_TRUE(ranks.all_succeeded()) << ranks.report();
  EXPECT_THAT(ranks.output(0), AnyOf(AllOf(HasSubstr("this LibTorch was built without NCCL"), HasSubstr("lockstep")),
                                     HasSubstr("backend nccl needs a GPU")))
      << ranks.report();
}

torch::nn::Sequential model() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(64, 600), torch::nn::Tanh(), torch::nn::Linear(600, 600),
                               torch::nn::Tanh(), torch::nn::Linear(600, 8));
}

at::Tensor whole(std::int64_t columns) { return torch::linspace(-1, 1, 24 * columns).reshape({24, columns}); }
at::Tensor share(const at::Tensor& all, const ProcessGroupScope& job) {
  return all.chunk(job.world_size())[static_cast<std::size_t>(job.rank())];
}

bool equals(const at::Tensor& tensor, double value) {
  return torch::equal(tensor.cpu(), torch::full(tensor.sizes(), value, tensor.options().device(torch::kCPU)));
}

LOCKSTEP_PROCESS_ROLE(nccl_collectives) {
  ProcessGroupScope job({.backend = "nccl"});
  const torch::Device gpu(torch::kCUDA);  // init_process_group made this rank's GPU the current one
  const int rank = job.rank(), size = job.world_size();
  const double mine = rank + 1, sum = size * (size + 1) / 2.0;
  for (const auto type : {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16, torch::kLong, torch::kInt}) {
    const auto values = [&](double value, std::int64_t count = 1000) {
      return torch::full({count}, value, torch::dtype(type).device(gpu));
    };
    at::Tensor tensor = values(mine);
    all_reduce(tensor);
    REQUIRE_TRUE(equals(tensor, sum));
    tensor = values(mine);
    all_reduce(tensor, {.op = ReduceOp::max});
    REQUIRE_TRUE(equals(tensor, size));
    tensor = values(mine);
    broadcast(tensor, size - 1);
    REQUIRE_TRUE(equals(tensor, size));
    tensor = values(mine);
    reduce(tensor, 0);
    REQUIRE_TRUE(rank != 0 || equals(tensor, sum));
    std::vector<at::Tensor> gathered;
    for (int r = 0; r < size; ++r) gathered.push_back(values(0, 10 + r));
    all_gather(gathered, values(mine, 10 + rank));
    for (int r = 0; r < size; ++r) REQUIRE_TRUE(equals(gathered[static_cast<std::size_t>(r)], r + 1));
    at::Tensor all = values(0, 10 * size);
    all_gather_into_tensor(all, values(mine, 10));
    REQUIRE_TRUE(equals(all.narrow(0, 10 * (size - 1), 10), size));
    at::Tensor part = values(0, 10);
    reduce_scatter_tensor(part, values(mine, 10 * size));
    REQUIRE_TRUE(equals(part, sum));
    at::Tensor exchanged = values(0, 10 * size);
    all_to_all_single(exchanged, values(mine, 10 * size));
    for (int r = 0; r < size; ++r) REQUIRE_TRUE(equals(exchanged.narrow(0, 10 * r, 10), r + 1));
    std::vector<at::Tensor> on_root;
    for (int r = 0; rank == 0 && r < size; ++r) on_root.push_back(values(0, 10));
    gather(values(mine, 10), on_root, 0);
    REQUIRE_TRUE(rank != 0 || equals(on_root.back(), size));
    for (at::Tensor& each : on_root) each.fill_(7);
    scatter(part, on_root, 0);
    REQUIRE_TRUE(equals(part, 7));
    if (rank == 0) send(values(5, 10), 1);
    if (rank == 1) {
      recv(part, 0);
      REQUIRE_TRUE(equals(part, 5));
    }
  }
  at::Tensor average = torch::full({1000}, mine, gpu);
  all_reduce(average, {.op = ReduceOp::avg});
  REQUIRE_TRUE(equals(average, sum / size));
  const at::Tensor transposed = torch::full({30, 20}, mine, gpu).t();
  all_reduce(transposed);
  REQUIRE_TRUE(equals(transposed, sum));
  at::Tensor on_cpu = torch::full({10}, mine);
  all_reduce(on_cpu);  // Lockstep's own engine serves CPU tensors beside NCCL
  REQUIRE_TRUE(equals(on_cpu, sum));
  barrier();
  return 0;
}

TEST(Nccl, AllCollectives) {
  LOCKSTEP_SKIP_WITHOUT_NCCL();
  run_role("nccl_collectives");
}

// Trains with DDP on GPUs and alone on the CPU, and compares.
struct Comparison {
  explicit Comparison(const ProcessGroupScope& job, const DdpOptions& options = {}, const char* hook = "")
      : job(job), distributed(model()), alone(model()) {
    distributed->to(torch::kCUDA);
    ddp.emplace(distributed, options);
    if (std::string(hook) == "bf16") ddp->register_comm_hook(bf16_compress_hook());
    optimizer.emplace(distributed->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    optimizer_alone.emplace(alone->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  }
  void backward() {
    torch::mse_loss((*ddp)(share(whole(64), job).to(torch::kCUDA)), share(whole(8), job).to(torch::kCUDA)).backward();
    torch::mse_loss(alone->forward(whole(64)), whole(8)).backward();
  }
  void step() {
    optimizer->step();
    optimizer_alone->step();
    optimizer->zero_grad();
    optimizer_alone->zero_grad();
  }
  bool same(double tolerance) {
    for (std::size_t i = 0; i < alone->parameters().size(); ++i) {
      if (torch::allclose(distributed->parameters()[i].cpu(), alone->parameters()[i], 1e-3, tolerance)) continue;
      std::cerr << "parameter " << i << " differs from one process's\n";
      return false;
    }
    return true;
  }

  const ProcessGroupScope& job;
  torch::nn::Sequential distributed, alone;
  std::optional<DistributedDataParallel<torch::nn::Sequential>> ddp;
  std::optional<torch::optim::SGD> optimizer, optimizer_alone;
};

LOCKSTEP_PROCESS_ROLE(nccl_trains) {
  ProcessGroupScope job;  // the default backend: nccl for CUDA tensors
  for (const DdpOptions& options :
       {DdpOptions{}, DdpOptions{.bucket_cap_mb = 1}, DdpOptions{.static_graph = true},
        DdpOptions{.find_unused_parameters = true}, DdpOptions{.gradient_as_bucket_view = true}}) {
    Comparison training(job, options);
    for (int step = 0; step < 5; ++step) {
      training.backward();
      training.step();
    }
    training.ddp->verify_in_sync();
    REQUIRE_TRUE(training.same(1e-5));
    REQUIRE_TRUE(training.ddp->logging_data().steps == 5);
  }
  Comparison compressed(job, {}, "bf16");
  for (int step = 0; step < 5; ++step) {
    compressed.backward();
    compressed.step();
  }
  compressed.ddp->verify_in_sync();
  REQUIRE_TRUE(compressed.same(1e-2));
  return 0;
}

TEST(Nccl, TrainsAsOneProcessOnTheCpuWould) {
  LOCKSTEP_SKIP_WITHOUT_NCCL();
  run_role("nccl_trains");
}

LOCKSTEP_PROCESS_ROLE(nccl_accumulates) {
  ProcessGroupScope job({.backend = "nccl"});
  Comparison training(job);
  for (int step = 0; step < 3; ++step) {
    {
      const auto no_sync = training.ddp->no_sync();
      training.backward();
    }
    training.backward();
    training.step();
  }
  REQUIRE_TRUE(training.same(1e-5));
  return 0;
}

TEST(Nccl, AccumulatesWithoutSynchronising) {
  LOCKSTEP_SKIP_WITHOUT_NCCL();
  run_role("nccl_accumulates");
}

LOCKSTEP_PROCESS_ROLE(nccl_joins) {
  ProcessGroupScope job({.backend = "nccl"});
  torch::nn::Sequential net = model();
  net->to(torch::kCUDA);
  DistributedDataParallel ddp(net);
  torch::optim::SGD optimizer(ddp->parameters(), 0.05);
  ddp.join([&] {
    for (int step = 0; step < 3 + 2 * job.rank(); ++step) {
      optimizer.zero_grad();
      ddp(whole(64).to(torch::kCUDA)).square().mean().backward();
      optimizer.step();
    }
  });
  ddp.verify_in_sync();
  return 0;
}

TEST(Nccl, JoinsUnevenInputs) {
  LOCKSTEP_SKIP_WITHOUT_NCCL();
  run_role("nccl_joins");
}

// The host runs ahead: nothing between the first and the last line waits for the GPU, and the values are right.
LOCKSTEP_PROCESS_ROLE(nccl_streams) {
  ProcessGroupScope job({.backend = "nccl"});
  const torch::Device gpu(torch::kCUDA);
  const int size = job.world_size();
  at::Tensor work = torch::ones({2000, 2000}, gpu), tensor = torch::zeros({1 << 20}, gpu);
  for (int round = 0; round < 20; ++round) {
    work = work.mm(work).clamp(0, 1);  // keeps the GPU busy while operations are queued behind it
    tensor.fill_(job.rank() + round);
    const Work reduced = all_reduce_async(tensor);
    REQUIRE_TRUE(reduced.is_completed());
    reduced.wait();
    const at::Tensor copy = tensor * 2;  // on the stream that has waited
    tensor.fill_(-1);
    REQUIRE_TRUE(equals(copy, 2.0 * (size * (size - 1) / 2.0 + size * round)));
  }
  return 0;
}

TEST(Nccl, WaitingOrdersStreams) {
  LOCKSTEP_SKIP_WITHOUT_NCCL();
  run_role("nccl_streams");
}

LOCKSTEP_PROCESS_ROLE(nccl_loses_a_peer) {
  ProcessGroupScope job({.backend = "nccl", .peer_timeout = std::chrono::seconds(3)});
  torch::nn::Sequential net = model();
  net->to(torch::kCUDA);
  DistributedDataParallel ddp(net);
  try {
    for (int step = 0;; ++step) {
      net->zero_grad();
      at::Tensor loss = ddp(whole(64).to(torch::kCUDA)).sum();
      if (step == 3 && job.rank() == 1) ::raise(SIGKILL);
      loss.backward();
      static_cast<void>(loss.item<float>());
    }
  } catch (const std::exception& error) {
    std::cout << "threw: " << error.what() << '\n';
    return 0;
  }
}

TEST(Nccl, ALostPeerIsNamed) {
  LOCKSTEP_SKIP_WITHOUT_NCCL();
  ProcessSet ranks = start_ranks(kRanks, "nccl_loses_a_peer");
  ASSERT_TRUE(ranks.wait_all(in_seconds(100))) << ranks.report();
  EXPECT_TRUE(ranks.exit_status(0)->success()) << ranks.report();
  EXPECT_THAT(ranks.output(0), HasSubstr("rank 1")) << ranks.report();
}

LOCKSTEP_PROCESS_ROLE(lockstep_with_gpu_model) {
  ProcessGroupScope job({.backend = "lockstep"});
  torch::nn::Sequential net = model();
  net->to(torch::kCUDA);
  try {
    DistributedDataParallel ddp(net);
  } catch (const Error& error) {
    std::cout << "threw: " << error.what() << '\n';
    return 0;
  }
  return 1;
}

TEST(Nccl, AGroupForTheCpuNamesTheBackendToAskFor) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "there is no GPU to put a model on";
  ProcessSet ranks = start_ranks(1, "lockstep_with_gpu_model");
  ASSERT_TRUE(ranks.wait_all(in_seconds(60))) << ranks.report();
  EXPECT_TRUE(ranks.all_succeeded()) << ranks.report();
  EXPECT_THAT(ranks.output(0), HasSubstr("cpu:lockstep,cuda:nccl")) << ranks.report();
}

}  // namespace
}  // namespace lockstep::testing
