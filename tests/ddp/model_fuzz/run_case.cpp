#include "ddp/model_fuzz/run_case.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <optional>

#include "ddp/model_fuzz/comparison.h"
#include "ddp/model_fuzz/hand_program.h"
#include "ddp/model_fuzz/rules.h"
#include "lockstep/lockstep.h"

namespace lockstep::fuzz {

namespace {

constexpr double kLearningRate = 0.05;
constexpr const char* kMark = "model fuzz: ";

DdpOptions options_of(const Case& item, std::shared_ptr<ProcessGroup> group) {
  const Options& options = item.options;
  DdpOptions result;
  result.process_group = std::move(group);
  result.bucket_cap_mb = static_cast<double>(options.bucket_cap_bytes) / 1048576;
  result.first_bucket_mb = static_cast<double>(options.first_bucket_bytes) / 1048576;
  result.broadcast_buffers = options.broadcast_buffers;
  result.init_sync = options.init_sync;
  result.find_unused_parameters = options.find_unused_parameters;
  result.static_graph = options.static_graph;
  result.gradient_as_bucket_view = options.gradient_as_bucket_view;
  result.sample_weighted = options.sample_weighted;
  result.verify_every = options.verify_every;
  for (std::size_t p = 0; p < item.model.parameters.size(); ++p) {
    if (item.model.parameters[p].ignored) result.parameters_to_ignore.insert(fmt::format("p{}", p));
  }
  return result;
}

std::shared_ptr<CommHook> hook_of(const Options& options) {
  switch (options.hook) {
    case Hook::none: return nullptr;
    case Hook::all_reduce: return all_reduce_hook();
    case Hook::fp16: return fp16_compress_hook();
    case Hook::bf16: return bf16_compress_hook();
    case Hook::int8: return int8_compress_hook();
    case Hook::power_sgd: return power_sgd_hook({.start_iteration = options.hook_start, .min_compression_rate = 1});
    case Hook::noop: return noop_hook();
    case Hook::post_local_sgd: return post_local_sgd_hook({.start_step = options.hook_start});
  }
  return nullptr;
}

class CaseRun {
 public:
  CaseRun(const Case& item, const std::shared_ptr<ProcessGroup>& group, const std::shared_ptr<ProcessGroup>& check)
      : case_(item),
        rank_(group->rank()),
        comparison_(item, check),
        module_(std::make_shared<GraphModule>(item, start(), /*track=*/false)),
        hand_(item, check, start()),
        group_(group) {}

  Outcome run() {
    phase_ = Phase::ddp;
    ddp_.emplace(module_, options_of(case_, group_));
    if (auto hook = hook_of(case_.options)) ddp_->register_comm_hook(std::move(hook));
    std::vector<at::Tensor> trained;
    for (const at::Tensor& leaf : module_->leaves()) {
      if (leaf.requires_grad()) trained.push_back(leaf);
    }
    const bool momentum = case_.training.momentum && !case_.training.joins();
    optimizer_.emplace(trained, torch::optim::SGDOptions(kLearningRate).momentum(momentum ? 0.9 : 0));
    if (case_.training.joins()) {
      run_joined();
      run_step(case_.training.steps);
    } else {
      for (int step = 0; step < case_.training.steps; ++step) run_step(step);
    }
    phase_ = Phase::ddp;
    try {
      if (!drifts(case_.options)) ddp_->verify_in_sync();
    } catch (const Error&) {  // after a difference that is known already
      if (comparison_.outcome().kind != Outcome::Kind::wrong) throw;
    }
    return comparison_.outcome();
  }

  bool by_hand() const { return phase_ == Phase::hand; }

 private:
  enum class Phase { hand, ddp };

  // Replicas start elsewhere if DDP makes them equal.
  std::int64_t start() const { return case_.options.init_sync && !has_ignored() ? rank_ : 0; }
  bool has_ignored() const {
    for (const Parameter& parameter : case_.model.parameters) {
      if (parameter.ignored) return true;
    }
    return false;
  }

  // After sums that are not defined, every step begins without gradients.
  Zero zero() const { return undefined_ ? Zero::to_undefined : case_.training.zero; }

  LocalGradients ddp_pass(int step) {
    Pass pass;
    pass.forward = [&](std::vector<at::Tensor> inputs, bool) {
      const at::Tensor first = inputs[0];
      inputs.erase(inputs.begin());
      return ddp_->forward(first, inputs);
    };
    pass.no_sync = [&]() -> std::shared_ptr<void> {
      return std::make_shared<GradientSynchronizer::NoSync>(ddp_->synchronizer());
    };
    pass.before_backward = [](int) {};
    pass.after_backward = [](int, bool) {};
    return run_pass(case_, {rank_, step, 0, 0}, *module_, pass);
  }

  void run_step(int step) {
    const std::vector<at::Tensor> own = zero_gradients(*module_, zero());
    phase_ = Phase::hand;
    hand_.load(*module_);
    std::vector<at::Tensor> whole;
    if (rank_ == 0 && equals_whole_batch(case_)) {
      GraphModule alone(case_, 0, false);
      at::NoGradGuard no_grad;
      for (std::size_t p = 0; p < alone.leaves().size(); ++p) {
        const_cast<at::Tensor&>(alone.leaves()[p]).copy_(module_->leaves()[p]);
      }
      at::AutoGradMode with_gradients(true);
      whole = whole_batch_gradients(case_, step, alone);
    }
    const Expected expected = hand_.step(step, std::vector<char>(static_cast<std::size_t>(case_.training.world), 1));
    undefined_ |= expected.undefined_sums;
    phase_ = Phase::ddp;
    const LocalGradients local = ddp_pass(step);
    phase_ = Phase::hand;
    comparison_.step(step, expected, *module_, local);
    if (!whole.empty()) comparison_.whole_batch(step, expected, whole, *module_);
    check_own(step, own);
    check_kept(step);
    check_replicas("gradients across ranks", step, [](const at::Tensor& leaf) { return leaf.grad(); });
    optimizer_->step();
    check_replicas("parameters across ranks", step, [](const at::Tensor& leaf) { return leaf; });
    if (case_.training.evaluate) evaluate(step);
  }

  template <typename Get>
  void check_replicas(const std::string& check, int step, Get&& get) {
    if (drifts(case_.options)) return;
    std::vector<at::Tensor> tensors;
    for (std::size_t p = 0; p < module_->leaves().size(); ++p) {
      if (!case_.model.parameters[p].ignored) tensors.push_back(get(module_->leaves()[p]));
    }
    comparison_.across_ranks(check, step, tensors);
  }

  // The averages are where the program expects them.
  void check_own(int step, const std::vector<at::Tensor>& own) {
    if (own.empty() || case_.options.gradient_as_bucket_view) return;
    std::size_t next = 0;
    for (std::size_t p = 0; p < module_->leaves().size(); ++p) {
      const at::Tensor& leaf = module_->leaves()[p];
      if (!leaf.requires_grad()) continue;
      const at::Tensor part = own[next++].narrow(0, 1, leaf.numel()).view(leaf.sizes());
      comparison_.close("gradient in own memory", fmt::format("gradient of p{}", p), step, part, leaf.grad(), 0);
    }
  }

  // Gradients that the program kept from the steps before must not change; and it keeps this step's.
  void check_kept(int step) {
    const bool stays = zero() == Zero::to_undefined && !case_.options.gradient_as_bucket_view;
    if (!case_.training.keep_gradients || !stays) return;
    for (const auto& [name, handle, copy] : kept_) comparison_.close("kept gradient", name, step, handle, copy, 0);
    for (std::size_t p = 0; p < module_->leaves().size(); ++p) {
      const at::Tensor gradient = module_->leaves()[p].grad();
      if (gradient.defined()) kept_.push_back({fmt::format("kept gradient of p{}", p), gradient, gradient.clone()});
    }
  }

  // The same input gives the same output on every rank.
  void evaluate(int step) {
    at::NoGradGuard no_grad;
    module_->eval();
    const Place place{0, step, 0, 2};
    module_->go_to(place);
    std::vector<at::Tensor> inputs = inputs_of(case_, place, 2);
    const at::Tensor first = inputs[0];
    inputs.erase(inputs.begin());
    phase_ = Phase::ddp;
    const std::vector<at::Tensor> outputs = ddp_->forward(first, inputs);
    phase_ = Phase::hand;
    module_->train();
    if (!drifts(case_.options) && !has_ignored() && case_.options.broadcast_buffers) {
      comparison_.across_ranks("evaluation across ranks", step, outputs);
    }
  }

  // The whole training by hand first, because ranks inside of join() cannot stop to compare.
  void run_joined() {
    const Training& training = case_.training;
    const int mine = training.join_steps[static_cast<std::size_t>(rank_)];
    phase_ = Phase::hand;
    hand_.load(*module_);
    std::vector<Expected> expected;
    std::vector<Zero> zeroes;
    int last_active = 0;
    for (int step = 0; step < training.steps; ++step) {
      std::vector<char> active;
      for (int steps : training.join_steps) active.push_back(step < steps);
      last_active = static_cast<int>(std::find(active.begin(), active.end(), 1) - active.begin());
      zeroes.push_back(zero());
      if (step < mine) zero_gradients(hand_.module(), zero());
      expected.push_back(hand_.step(step, active));
      undefined_ |= expected.back().undefined_sums;
      if (step < mine) hand_.optimize(kLearningRate);
    }
    hand_.broadcast_all(last_active);
    phase_ = Phase::ddp;
    std::vector<std::vector<at::Tensor>> gradients;
    ddp_->join(
        [&] {
          for (int step = 0; step < mine; ++step) {
            zero_gradients(*module_, zeroes[static_cast<std::size_t>(step)]);
            ddp_pass(step);
            gradients.emplace_back();
            for (const at::Tensor& leaf : module_->leaves()) {
              gradients.back().push_back(leaf.grad().defined() ? leaf.grad().clone() : at::Tensor());
            }
            optimizer_->step();
          }
        },
        {.divide_by_initial_world_size = training.divide_by_world});
    phase_ = Phase::hand;
    for (int step = 0; step < mine; ++step) {
      comparison_.gradients(step, expected[static_cast<std::size_t>(step)], gradients[static_cast<std::size_t>(step)]);
    }
    for (std::size_t p = 0; p < module_->leaves().size() && !undefined_; ++p) {
      // Trained apart from each other for some steps.
      const at::Tensor& trained = hand_.module().leaves()[p];
      const double size = trained.numel() > 0 ? trained.detach().abs().max().item<double>() : 0;
      const double relative = case_.model.parameters[p].type == Type::bf16 ? 2e-2 : 1e-3;
      comparison_.close("parameter after join", fmt::format("p{}", p), training.steps, module_->leaves()[p], trained,
                        relative * (1 + size));
    }
    check_replicas("parameters across ranks", training.steps, [](const at::Tensor& leaf) { return leaf; });
    // Gradients are each rank's own after join: the next step begins without.
    zero_gradients(*module_, Zero::to_undefined);
  }

  const Case& case_;
  const int rank_;
  Phase phase_ = Phase::ddp;
  bool undefined_ = false;
  Comparison comparison_;
  std::shared_ptr<GraphModule> module_;
  HandProgram hand_;
  std::shared_ptr<ProcessGroup> group_;
  std::optional<DistributedDataParallel<std::shared_ptr<GraphModule>>> ddp_;
  std::optional<torch::optim::SGD> optimizer_;
  struct Kept {
    std::string name;
    at::Tensor handle, copy;
  };
  std::vector<Kept> kept_;
};

}  // namespace

Outcome run_case(const Case& item, const std::shared_ptr<ProcessGroup>& group,
                 const std::shared_ptr<ProcessGroup>& check) {
  std::optional<CaseRun> run;
  try {
    run.emplace(item, group, check);
    return run->run();
  } catch (const std::exception& error) {
    const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
    std::string message = of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
    if (of_torch != nullptr) message.resize(std::min(message.size(), message.find('\n')));
    const auto* own = dynamic_cast<const Error*>(&error);
    Outcome outcome{Outcome::Kind::refused, category_of_message(message),
                    fmt::format("rank {}: {}", group->rank(), message)};
    if (!run || run->by_hand()) outcome.kind = Outcome::Kind::invalid;
    if (own != nullptr && own->code() == StatusCode::timed_out) outcome.kind = Outcome::Kind::hung;
    if (message.find(kMark) != std::string::npos) outcome.kind = Outcome::Kind::collateral;
    group->abort(fmt::format("{}rank {} failed", kMark, group->rank()));
    check->abort(fmt::format("{}rank {} failed", kMark, group->rank()));
    return outcome;
  }
}

}  // namespace lockstep::fuzz
