#include "ddp/soak/rank.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "lockstep/lockstep.h"

namespace lockstep::soak {
namespace {

using torch::nn::Sequential;
using Group = std::shared_ptr<ProcessGroup>;
template <typename M>
using Ddp = DistributedDataParallel<M>;

constexpr std::int64_t kInputs = 16, kWide = 560, kOutputs = 4, kRows = 8;

// A weight of more than 1 MiB (a bucket of its own), small ones, and the buffers of a batch norm.
Sequential make_model() {
  return Sequential(torch::nn::Linear(kInputs, kWide), torch::nn::BatchNorm1d(kWide), torch::nn::Tanh(),
                    torch::nn::Linear(kWide, kWide), torch::nn::Tanh(), torch::nn::Linear(kWide, kOutputs));
}

at::Tensor batch(std::int64_t rows = kRows) { return torch::randn({rows, kInputs}); }

// The second branch is used only if asked for.
struct BranchesImpl : torch::nn::Module {
  BranchesImpl() {
    first = register_module("first", torch::nn::Linear(kInputs, kOutputs));
    second = register_module("second", torch::nn::Linear(kInputs, kOutputs));
  }
  at::Tensor forward(const at::Tensor& x, bool both) { return both ? first(x) + second(x) : first(x); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(Branches);

template <typename M, typename... Inputs>
void step(Ddp<M>& ddp, torch::optim::Optimizer& optimizer, Inputs&&... inputs) {
  optimizer.zero_grad();
  ddp(std::forward<Inputs>(inputs)...).square().mean().backward();
  optimizer.step();
}

template <typename M, typename Step>
void train(Ddp<M>& ddp, int steps, const Step& one_step) {
  torch::optim::SGD optimizer(ddp->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  for (int i = 0; i < steps; ++i) one_step(i, optimizer);
}

void train(Ddp<Sequential>& ddp, int steps) {
  train(ddp, steps, [&ddp](int, auto& optimizer) { step(ddp, optimizer, batch()); });
}

void evaluate(Ddp<Sequential>& ddp) {
  torch::NoGradGuard no_grad;
  ddp->eval();
  ddp(batch());
  ddp->train();
}

void train_with(const DdpOptions& options, std::shared_ptr<CommHook> hook = nullptr, bool same = true) {
  Ddp<Sequential> ddp(make_model(), options);
  if (hook) ddp.register_comm_hook(std::move(hook));
  train(ddp, 3);
  evaluate(ddp);
  train(ddp, 1);
  if (same) ddp.verify_in_sync();
}

}  // namespace

class Rank::Impl {
 public:
  explicit Impl(std::string folder) : folder_(std::move(folder)) {
    torch::set_num_threads(1);
    torch::manual_seed(100 + job_.rank());
    ddp_.emplace(make_model());
    optimizer_.emplace(ddp_->parameters(), torch::optim::AdamOptions(1e-3));
    std::iota(world_.begin(), world_.end(), 0);
    add_options();
    add_hooks();
    add_loops();
    add_groups();
    add_state();
  }

  int number() const { return job_.rank(); }
  const auto& features() const { return features_; }
  const Group& group() const { return job_.group(); }

  void run_round() {
    for (const auto& [name, run] : features_) {
      try {
        run();
      } catch (const std::exception& error) {
        throw std::runtime_error(fmt::format("rank {}, {}: {}", number(), name, error.what()));
      }
    }
  }

 private:
  void add(std::string name, std::function<void()> run) { features_.emplace_back(std::move(name), std::move(run)); }

  void add_options() {
    add("fused optimizer", [this] {
      Ddp<Sequential> ddp(make_model());
      optim::AdamW optimizer(ddp->parameters(), torch::optim::AdamWOptions(1e-3));
      optimizer.step_options() = {.max_norm = 1, .skip_nonfinite = true};
      LearningRate rate(optimizer, schedule::cosine({.warmup_steps = 2, .total_steps = 4}));
      for (int i = 0; i < 4; ++i) {
        rate.apply(i);
        step(ddp, optimizer, batch());
      }
    });
    add("one model all the time", [this] {
      for (int i = 0; i < 3; ++i) step(*ddp_, *optimizer_, batch());
      evaluate(*ddp_);
      ddp_->verify_in_sync();
    });
    add("defaults", [] { train_with({}); });
    add("small buckets", [] { train_with({.bucket_cap_mb = 0.02, .first_bucket_mb = 0.001}); });
    add("broadcast_buffers off", [] { train_with({.broadcast_buffers = false}); });
    add("init_sync off", [] {
      Sequential model = make_model();
      for (const at::Tensor& tensor : model->parameters()) broadcast(tensor.detach(), 0);
      Ddp<Sequential> ddp(model, {.init_sync = false});
      train(ddp, 3);
      ddp.verify_in_sync();
    });
    add("find_unused_parameters", [this] {
      Ddp<Branches> ddp(Branches(), {.find_unused_parameters = true});
      train(ddp, 4, [&](int i, auto& optimizer) { step(ddp, optimizer, batch(), (i + number()) % 2 == 0); });
      ddp.verify_in_sync();
    });
    add("static_graph", [] {
      Ddp<Branches> ddp(Branches(), {.static_graph = true});
      train(ddp, 4, [&](int, auto& optimizer) { step(ddp, optimizer, batch(), false); });
      ddp.verify_in_sync();
      train_with({.static_graph = true});
    });
    add("gradient_as_bucket_view", [] { train_with({.gradient_as_bucket_view = true}); });
    add("parameters_to_ignore", [] { train_with({.parameters_to_ignore = {"5.weight"}}); });
    add("verify_every", [] { train_with({.verify_every = 1}); });
    add("sample_weighted", [this] {
      Ddp<Branches> ddp(Branches(), {.sample_weighted = true});
      train(ddp, 4, [&](int i, auto& optimizer) {
        const std::int64_t rows = (i + number()) % 3;  // some batches are empty
        optimizer.zero_grad();
        const at::Tensor output = ddp(batch(rows), true);
        (rows > 0 ? output.square().mean() : output.sum()).backward();
        optimizer.step();
      });
      ddp.verify_in_sync();
    });
  }

  void add_hooks() {
    add("all_reduce_hook", [] { train_with({}, all_reduce_hook()); });
    add("fp16_compress_hook", [] { train_with({}, fp16_compress_hook()); });
    add("bf16_compress_hook", [] { train_with({}, bf16_compress_hook()); });
    add("int8_compress_hook", [] { train_with({}, int8_compress_hook()); });
    add("power_sgd_hook", [] { train_with({}, power_sgd_hook({.start_iteration = 1})); });
    add("noop_hook", [] { train_with({}, noop_hook(), /*same=*/false); });
    add("a hook of the program", [] {
      const auto sum = [](const GradBucket& bucket, ProcessGroup& group) {
        Work work = group.all_reduce(bucket.buffer(), {});
        return HookFuture({std::move(work)}, [buffer = bucket.buffer(), n = group.size()] {
          at::Tensor(buffer).div_(n);
          return HookFuture();
        });
      };
      train_with({}, make_comm_hook("sum", sum));
    });
    add("post_local_sgd_hook", [this] {
      const Group all = new_group(world_);
      Ddp<Sequential> ddp(make_model());
      ddp.register_comm_hook(post_local_sgd_hook({.start_step = 1, .subgroup = all}));
      PeriodicModelAverager averager({.period = 2});
      train(ddp, 3, [&](int, auto& optimizer) {
        step(ddp, optimizer, batch());
        averager.average_parameters(ddp->parameters());
      });
      ddp.verify_in_sync();
    });
  }

  void add_loops() {
    add("no_sync", [] {
      Ddp<Sequential> ddp(make_model());
      train(ddp, 2, [&](int, auto& optimizer) {
        optimizer.zero_grad();
        {
          const auto accumulate = ddp.no_sync();
          for (int i = 0; i < 2; ++i) ddp(batch()).square().mean().backward();
        }
        ddp(batch()).square().mean().backward();
        optimizer.step();
      });
      ddp.verify_in_sync();
    });
    add("join", [this] {
      Ddp<Sequential> ddp(make_model());
      ddp.join([&] { train(ddp, 1 + number()); }, {.divide_by_initial_world_size = false});
      ddp.verify_in_sync();
    });
    add("two forwards, then frozen", [] {  // as a GAN's discriminator
      Ddp<Sequential> ddp(make_model());
      train(ddp, 2, [&](int, auto& optimizer) {
        optimizer.zero_grad();
        (ddp(batch()).mean() - ddp(batch()).mean()).square().backward();
        optimizer.step();
        for (at::Tensor parameter : ddp->parameters()) parameter.set_requires_grad(false);
        const at::Tensor input = batch().set_requires_grad(true);
        ddp(input).sum().backward();
        for (at::Tensor parameter : ddp->parameters()) parameter.set_requires_grad(true);
      });
      ddp.verify_in_sync();
    });
    add("GradientSynchronizer", [] {
      Sequential model = make_model();
      GradientSynchronizer sync(*model);
      for (int i = 0; i < 2; ++i) {
        sync.before_forward(kRows);
        const at::Tensor output = model->forward(batch());
        sync.after_forward({output});
        output.square().mean().backward();
        model->zero_grad();
      }
      sync.verify_in_sync();
    });
    add("DataParallel", [] {
      Sequential model = make_model();
      DataParallel dp(model, {.replicas = 2});
      dp(batch()).square().mean().backward();
    });
  }

  void add_groups() {
    add("new groups", [this] {
      const Group all = new_group(world_);
      train_with({.process_group = all});
      const Subgroups alone = new_subgroups(1);
      train_with({.process_group = alone.mine});
      const Group pair = new_group({0, 1});
      if (pair->rank() >= 0) train_with({.process_group = pair});
      const Group split = split_group({world_});
      const at::Tensor one = torch::ones({1});
      all_reduce(one, {.group = split});
      if (one.item<double>() != job_.world_size()) throw std::runtime_error("all_reduce gave another sum");
    });
    add("a model that is refused", [this] {
      const Group all = new_group(world_);
      try {
        Ddp<Sequential> ddp(Sequential(torch::nn::Linear(kInputs, 2 + number())), {.process_group = all});
      } catch (const Error&) {
        return;
      }
      throw std::runtime_error("different models were accepted");
    });
    add("SyncBatchNorm", [this] {
      Sequential model(torch::nn::Linear(kInputs, kOutputs), SyncBatchNorm(kOutputs), torch::nn::Linear(kOutputs, 2));
      Ddp<Sequential> ddp(model);
      train(ddp, 2);
      ddp.verify_in_sync();
      const Group all = new_group(world_);
      Sequential converted = make_model();
      convert_sync_batchnorm(converted, all);
      Ddp<Sequential> second(converted, {.process_group = all});
      train(second, 2);
      evaluate(second);
      second.verify_in_sync();
    });
  }

  void add_state() {
    add("ZeroRedundancyOptimizer", [] {
      Ddp<Sequential> ddp(make_model());
      ZeroRedundancyOptimizer<torch::optim::AdamW> optimizer(ddp->parameters(), torch::optim::AdamWOptions(1e-3));
      for (int i = 0; i < 3; ++i) {
        optimizer.zero_grad();
        ddp(batch()).square().mean().backward();
        clip_grad_norm_(ddp->parameters(), 0.5);
        optimizer.step();
      }
      optimizer.consolidate_state_dict();
      ddp.verify_in_sync();
    });
    for (const bool asynchronous : {false, true}) {
      add(asynchronous ? "asynchronous snapshots" : "snapshots", [this, asynchronous] {
        checkpoint::Snapshots snapshots(folder_, {.keep_last = 2, .asynchronous = asynchronous});
        Sequential model = make_model();
        Ddp<Sequential> ddp(model);
        torch::optim::Adam optimizer(ddp->parameters(), torch::optim::AdamOptions(1e-3));
        checkpoint::State state{.model = *model, .optimizer = optimizer, .step = step_};
        for (int i = 0; i < 2; ++i) {
          step(ddp, optimizer, batch());
          state.step = ++step_;
          snapshots.save(state);
        }
        snapshots.wait();
        if (!snapshots.load(state)) throw std::runtime_error("the snapshot is gone");
        step(ddp, optimizer, batch());
        ddp.verify_in_sync();
      });
    }
  }

  const std::string folder_;
  ProcessGroupScope job_;
  std::vector<int> world_ = std::vector<int>(static_cast<std::size_t>(job_.world_size()));
  std::vector<std::pair<std::string, std::function<void()>>> features_;
  std::optional<Ddp<Sequential>> ddp_;
  std::optional<torch::optim::Adam> optimizer_;
  std::int64_t step_ = 0;
};

Rank::Rank(const std::string& folder) : impl_(std::make_unique<Impl>(folder)) {}
Rank::~Rank() = default;
int Rank::number() const { return impl_->number(); }
void Rank::run_round() { impl_->run_round(); }

std::vector<std::string> Rank::features() const {
  std::vector<std::string> names;
  for (const auto& feature : impl_->features()) names.push_back(feature.first);
  return names;
}

std::vector<Usage> Rank::gather(const Usage& mine) {
  const int size = impl_->group()->size();
  const at::Tensor input = torch::tensor(std::vector<std::int64_t>(mine.begin(), mine.end()));
  const at::Tensor output = torch::empty({size, input.numel()}, torch::kLong);
  impl_->group()->all_gather(input, output, {}).wait();
  std::vector<Usage> all(static_cast<std::size_t>(size));
  for (std::size_t r = 0; r < all.size(); ++r) {
    std::copy_n(output.data_ptr<std::int64_t>() + r * mine.size(), mine.size(), all[r].begin());
  }
  return all;
}

bool Rank::agree(bool stop) {
  const at::Tensor flag = torch::full({1}, stop ? 1 : 0, torch::kLong);
  impl_->group()->broadcast(flag, 0, {}).wait();
  return flag.item<std::int64_t>() != 0;
}

}  // namespace lockstep::soak
