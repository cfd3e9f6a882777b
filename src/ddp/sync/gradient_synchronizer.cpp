#include "lockstep/ddp/gradient_synchronizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <unordered_set>

#include "base/log.h"
#include "ddp/group/operation_label.h"
#include "ddp/snapshot/optimizer_state.h"
#include "ddp/sync/model_labels.h"
#include "ddp/sync/reducer.h"
#include "ddp/sync/replicas/parameter_watch.h"
#include "ddp/sync/replicas/replica_state.h"
#include "ddp/sync/replicas/tensor_broadcast.h"
#include "ddp/sync/sample_weight.h"
#include "lockstep/ddp/init.h"
#include "lockstep/ddp/objects.h"

namespace lockstep {

namespace {

// Without the ignored ones, and each tensor once: a shared parameter has several names.
NamedTensors selected(const NamedTensors& tensors, const std::unordered_set<std::string>& ignored) {
  NamedTensors result;
  std::unordered_set<const void*> seen;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined() || ignored.contains(name)) continue;
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) result.emplace_back(name, tensor);
  }
  return result;
}

NamedTensors needing_gradients(const NamedTensors& parameters) {
  NamedTensors result;
  for (const auto& item : parameters) {
    if (item.second.requires_grad()) result.push_back(item);
  }
  if (result.empty()) {
    throw Error({StatusCode::invalid_argument,
                 "DistributedDataParallel: no parameter of this module requires a gradient, so there is nothing to "
                 "synchronise; use the module itself"});
  }
  return result;
}

NamedTensors checked_buffers(NamedTensors buffers) {
  const auto refuse = [](const std::string& name, const char* why) {
    throw Error({StatusCode::invalid_argument, fmt::format("DistributedDataParallel: buffer \"{}\" {}, or name it in "
                                                           "parameters_to_ignore",
                                                           name, why)});
  };
  for (const auto& [name, buffer] : buffers) {
    if (buffer.layout() != at::kStrided) refuse(name, "is sparse, which cannot be sent; make it dense");
    if (buffer.requires_grad()) {
      refuse(name, "needs a gradient, but only gradients of parameters are averaged; use register_parameter()");
    }
  }
  return buffers;
}

std::vector<at::Tensor> tensors_of(const NamedTensors& named) {
  std::vector<at::Tensor> result;
  for (const auto& item : named) result.push_back(item.second);
  return result;
}

// After an uneven join(), replicas are compared after the first step and after this many.
constexpr std::int64_t kLastCheckAfterJoin = 8;

}  // namespace

class GradientSynchronizer::Impl {
 public:
  Impl(const NamedTensors& parameters, const NamedTensors& buffers, const DdpOptions& options)
      : options_(options),
        group_(group_or_default(options.process_group)),
        parameters_(selected(parameters, options.parameters_to_ignore)),
        buffers_(checked_buffers(selected(buffers, options.parameters_to_ignore))),
        buffer_broadcast_(*group_, tensors_of(buffers_)),
        buffers_differ_(!options.init_sync),
        active_(group_->size()) {
    at::NoGradGuard no_grad;
    const NamedTensors trained = needing_gradients(parameters_);
    for (const auto& [name, parameter] : trained) {
      throw_if_error(group_->check(parameter, ReduceOp::avg)
                         .with_context(fmt::format("DistributedDataParallel: parameter \"{}\"", name)));
    }
    if (options_.init_sync) {
      detail::check_same_model(*group_, parameters_, buffers_);
      detail::broadcast_differing(*group_, all_tensors(), 0);
    }
    label_ = group_->next_label();
    layers_ = std::make_shared<const detail::ModelLabels>(label_, parameters_, buffers_);
    watch_ = std::make_unique<detail::ParameterWatch>(parameters_, buffers_);
    reducer_ = std::make_unique<detail::Reducer>(group_, trained, options_, label_);
  }

  ~Impl() {
    const std::string unfinished = reducer_ ? reducer_->unfinished_pass() : "";
    if (!unfinished.empty()) {
      log_error("DistributedDataParallel: the last step was not synchronised, so the replicas may differ: {}",
                unfinished);
    }
  }

  void check_unchanged(const ModelView& model) const {
    watch_->check_same(selected(model.named_parameters(), options_.parameters_to_ignore),
                       selected(model.named_buffers(), options_.parameters_to_ignore));
  }

  void before_forward(std::int64_t samples) {
    const detail::OperationLabel label(operation_label());
    if (!c10::GradMode::is_enabled()) return before_evaluation();
    forward_begin_ = detail::PassClock::Clock::now();
    reducer_->forward_began();
    at::NoGradGuard no_grad;
    reducer_->check_last_pass();
    training_ = watch_->check();
    reducer_->follow_accumulators();
    const bool synchronise = reducer_->synchronise() && training_;
    record_ = detail::ForwardRecord{.synchronise = synchronise};
    outer_weight_ = detail::sample_weight();
    outer_model_ = detail::running_model();
    detail::set_sample_weight(nullptr);
    if (joining_) {
      check_followed(synchronise);
      exchange_presence(true, synchronise);
      if (throw_early_ && active_ < group_->size()) end_early("another rank has");
    }
    if (options_.sample_weighted) weigh_samples(samples);
    if (synchronise) {
      if (options_.broadcast_buffers) take_buffers();
      if (!joining_ && options_.verify_every > 0 && ++forwards_ % options_.verify_every == 0) {
        detail::check_identical(*group_, parameters_, {});
      }
      check_after_join();
    }
    detail::set_running_model(layers_);
    buffers_differ_ = true;  // this forward may change them
  }

  void after_forward(const std::vector<at::Tensor>& outputs) {
    if (!c10::GradMode::is_enabled()) return;
    if (!record_) {
      throw Error({StatusCode::invalid_argument,
                   "GradientSynchronizer::after_forward: call before_forward() first, once for each forward"});
    }
    detail::ForwardRecord record = std::move(*record_);
    record_.reset();
    detail::set_running_model(outer_model_);
    // With a weight of its own, the loss that follows has that, too.
    if (!record.weight) detail::set_sample_weight(outer_weight_);
    outer_model_.reset();
    outer_weight_.reset();
    if (!training_) return;
    reducer_->set_scale([this] { return scale(); });
    reducer_->expect_backward(outputs, std::move(record));
    reducer_->logging_data().forward_seconds =
        std::chrono::duration<double>(detail::PassClock::Clock::now() - forward_begin_).count();
  }

  void join(const std::function<void()>& train_loop, const JoinOptions& options) {
    if (joining_) throw Error({StatusCode::invalid_argument, "join: this rank is inside join() already"});
    const detail::OperationLabel label(operation_label());
    joining_ = true;
    uneven_ = false;
    divide_by_active_ = !options.divide_by_initial_world_size;
    throw_early_ = options.throw_on_early_termination;
    ended_early_ = false;
    try {
      train_loop();
      at::NoGradGuard no_grad;
      reducer_->check_last_pass();
      while (exchange_presence(false, false)) {
        if (throw_early_) end_early("this rank has");
        shadow_step();
      }
      detail::TensorBroadcast(*group_, all_tensors()).run(authority_);
      if (uneven_) sync_optimizers(options.optimizers);
      passes_at_join_ = reducer_->passes();
      compare_after_join_ |= uneven_;
    } catch (const std::exception& error) {
      if (!ended_early_) {
        group_->abort(fmt::format("rank {} left join() with an exception: {}", group_->rank(), error.what()));
      }
      leave_join();
      throw;
    }
    leave_join();
  }

  void sync_buffers() {
    const detail::OperationLabel label(operation_label());
    reducer_->check_last_pass();
    buffer_broadcast_.run(authority_);
    buffers_differ_ = false;
  }

  void verify_in_sync() {
    at::NoGradGuard no_grad;
    const detail::OperationLabel label(operation_label());
    reducer_->check_last_pass();
    broadcast_buffers();
    detail::check_identical(*group_, parameters_, options_.broadcast_buffers ? buffers_ : NamedTensors());
  }

  void register_comm_hook(std::shared_ptr<CommHook> hook) {
    if (!hook) throw Error({StatusCode::invalid_argument, "register_comm_hook: the hook is null"});
    if (reducer_->logging_data().steps > 0 || !reducer_->logging_data().comm_hook.empty()) {
      throw Error({StatusCode::invalid_argument, "register_comm_hook: once, and before the first backward"});
    }
    reducer_->set_hook(std::move(hook));
  }

  void set_sample_count(std::int64_t samples) { next_samples_ = samples; }
  detail::Reducer& reducer() { return *reducer_; }
  const std::shared_ptr<ProcessGroup>& group() const { return group_; }

 private:
  std::vector<at::Tensor> all_tensors() const {
    std::vector<at::Tensor> all = tensors_of(parameters_);
    for (const auto& item : buffers_) all.push_back(item.second);
    return all;
  }

  void broadcast_buffers() {
    if (!options_.broadcast_buffers) return;
    buffer_broadcast_.run(authority_);
    buffers_differ_ = false;
  }

  // Of what is issued outside of passes.
  int operation_label() const { return detail::label_of(label_, 0); }

  // The optimizers of ranks that left the loop early made fewer steps. A rank that made all of them has their state.
  void sync_optimizers(const std::vector<std::reference_wrapper<torch::optim::Optimizer>>& optimizers) {
    for (torch::optim::Optimizer& optimizer : optimizers) {
      const bool source = group_->rank() == authority_;
      const std::string state = broadcast_object(source ? checkpoint::optimizer_to_bytes(optimizer) : "",
                                                 group_->global_rank(authority_), {.group = group_});
      if (!source) checkpoint::optimizer_from_bytes(optimizer, state);
    }
  }

  // Optimizers with a state, and learning rates, that are not the same on all ranks after a join() make replicas
  // diverge from the first step on.
  void check_after_join() {
    if (!compare_after_join_ || active_ < group_->size()) return;
    const std::int64_t steps = reducer_->passes() - passes_at_join_;
    if (steps != 1 && steps != kLastCheckAfterJoin) return;
    compare_after_join_ = steps != kLastCheckAfterJoin;
    try {
      detail::check_identical(*group_, parameters_, {});
    } catch (const Error& error) {
      throw Error(error.status().with_context(fmt::format(
          "rank {}: the replicas have diverged since a join() in which ranks made different numbers of steps, so their "
          "optimizers or learning rates differ. Name the optimizers in JoinOptions::optimizers, and count steps that "
          "are the same on all ranks for schedules",
          group_->rank())));
    }
  }

  // Every rank takes part. One on which a graph waits for its backward keeps its own buffers, which the graph may need:
  // a rank that keeps an output must not communicate differently from the others.
  void take_buffers() {
    buffer_broadcast_.run(authority_, reducer_->awaits_backward() ? detail::TensorBroadcast::Received::dropped
                                                                  : detail::TensorBroadcast::Received::kept);
    buffers_differ_ = false;
  }

  // Ranks that have left join()'s loop make one pass for each forward.
  void check_followed(bool synchronise) const {
    if (!synchronise || active_ == group_->size() || !reducer_->awaits_synchronisation()) return;
    throw Error({StatusCode::invalid_argument,
                 fmt::format("rank {}: join: another rank has no more data, and takes part with one forward for each "
                             "backward; this is the second forward before a backward. Pass both inputs to one forward",
                             group_->rank())});
  }

  // The first forward without gradients after training: all ranks are to evaluate with the same statistics.
  void before_evaluation() {
    if (const std::string unfinished = reducer_->unfinished_pass(); !unfinished.empty()) {
      log_warn("the last step was not synchronised, so the replicas may differ: {}", unfinished);
    }
    if (!options_.broadcast_buffers || !buffers_differ_ || buffer_broadcast_.empty() || joining_) return;
    try {
      take_buffers();
    } catch (const Error& error) {
      throw Error(error.status().with_context(fmt::format(
          "rank {}: the first forward without gradients after training takes the buffers (running statistics) from "
          "rank {} on all ranks, so all of them must call it. To evaluate on some ranks only, call sync_buffers() on "
          "all ranks before",
          group_->rank(), authority_)));
    }
  }

  // This rank's and all ranks' number of samples in one forward.
  struct SampleCount {
    std::int64_t mine = 0;
    at::Tensor total;
    Work counted;
  };

  std::shared_ptr<SampleCount> count_samples(std::int64_t mine) {
    auto count = std::make_shared<SampleCount>();
    count->mine = mine;
    count->total = at::full({1}, mine, at::kLong);
    count->counted = group_->all_reduce(count->total, {});
    return count;
  }

  void weigh_samples(std::int64_t samples) {
    if (next_samples_ >= 0) samples = next_samples_;
    next_samples_ = -1;
    if (samples < 0) {
      throw Error({StatusCode::invalid_argument,
                   "DdpOptions::sample_weighted: forward has no tensor argument to count samples by; call "
                   "set_sample_count() before it"});
    }
    record_->carry = static_cast<double>(group_->size()) / active_;
    record_->weight =
        std::make_shared<const std::function<double()>>([count = count_samples(samples), world = group_->size()] {
          count->counted.wait();
          const auto total = static_cast<double>(count->total.item<std::int64_t>());
          return total > 0 ? static_cast<double>(count->mine) * world / total : 0.0;
        });
    detail::set_sample_weight(record_->weight);
  }

  // The factor for this rank's gradients in a pass. Samples are weighted before that.
  double scale() const {
    return divide_by_active_ && !options_.sample_weighted ? static_cast<double>(group_->size()) / active_ : 1.0;
  }

  // Exchanges which ranks still train; false if none does.
  bool exchange_presence(bool active, bool synchronise) {
    constexpr std::uint8_t kActive = 1, kSynchronises = 2;
    const at::Tensor mine = at::full({1}, (active ? kActive : 0) | (synchronise ? kSynchronises : 0), at::kByte);
    const at::Tensor all = at::empty({group_->size()}, at::kByte);
    group_->all_gather(mine, all, {}).wait();
    int count = 0, lowest = -1;
    others_synchronise_ = false;
    for (int r = 0; r < group_->size(); ++r) {
      const std::uint8_t flags = all.data_ptr<std::uint8_t>()[r];
      if ((flags & kActive) == 0) continue;
      if (count++ == 0) lowest = r;
      others_synchronise_ |= (flags & kSynchronises) != 0;
    }
    if (count == 0) return false;
    active_ = count;
    if (count < group_->size()) uneven_ = true;
    authority_ = lowest;
    reducer_->set_authority(lowest);
    return true;
  }

  [[noreturn]] void end_early(const char* which) {
    ended_early_ = true;
    throw Error(
        {StatusCode::closed,
         fmt::format("join: {} no more data, and throw_on_early_termination is set, so all ranks stop here", which)});
  }

  void leave_join() {
    joining_ = divide_by_active_ = throw_early_ = false;
    active_ = group_->size();
    authority_ = 0;
    reducer_->set_authority(0);
  }

  // Takes part in the other ranks' step, without a forward of our own.
  void shadow_step() {
    if (options_.sample_weighted) count_samples(0);
    reducer_->set_scale([this] { return scale(); });
    if (!others_synchronise_) return;
    broadcast_buffers();
    reducer_->shadow_pass();
  }

  // Constant after construction.
  const DdpOptions options_;
  const std::shared_ptr<ProcessGroup> group_;
  const NamedTensors parameters_;
  const NamedTensors buffers_;
  int label_ = 0;
  std::shared_ptr<const detail::ModelLabels> layers_;
  std::unique_ptr<detail::ParameterWatch> watch_;
  std::unique_ptr<detail::Reducer> reducer_;

  detail::TensorBroadcast buffer_broadcast_;
  bool buffers_differ_;  // between ranks, perhaps

  // The forward that runs.
  detail::PassClock::Clock::time_point forward_begin_{};
  std::optional<detail::ForwardRecord> record_;
  // What was set when it began: it may run inside another model's forward.
  detail::SampleWeight outer_weight_;
  std::shared_ptr<const detail::ModelLabels> outer_model_;
  bool training_ = true;  // its parameters are not frozen
  std::int64_t forwards_ = 0;
  std::int64_t next_samples_ = -1;

  bool joining_ = false;
  bool divide_by_active_ = false;
  bool throw_early_ = false;
  bool ended_early_ = false;
  bool uneven_ = false;              // ranks have made different numbers of steps in this join()
  bool compare_after_join_ = false;  // or in an earlier one: check_after_join()
  std::int64_t passes_at_join_ = 0;  // when the latest one ended
  bool others_synchronise_ = false;
  int active_;         // how many ranks still train
  int authority_ = 0;  // the first of them
};

GradientSynchronizer::GradientSynchronizer(NamedTensors parameters, NamedTensors buffers, const DdpOptions& options)
    : impl_(std::make_unique<Impl>(parameters, buffers, options)) {}
GradientSynchronizer::GradientSynchronizer(const ModelView& model, const DdpOptions& options)
    : GradientSynchronizer(model.named_parameters(), model.named_buffers(), options) {}

GradientSynchronizer::~GradientSynchronizer() = default;

void GradientSynchronizer::before_forward(std::int64_t samples) { impl_->before_forward(samples); }
void GradientSynchronizer::after_forward(const std::vector<at::Tensor>& outputs) { impl_->after_forward(outputs); }
void GradientSynchronizer::set_sample_count(std::int64_t samples) { impl_->set_sample_count(samples); }
void GradientSynchronizer::join(const std::function<void()>& train_loop, const JoinOptions& options) {
  impl_->join(train_loop, options);
}
void GradientSynchronizer::check_unchanged(const ModelView& model) const { impl_->check_unchanged(model); }
void GradientSynchronizer::sync_buffers() { impl_->sync_buffers(); }
void GradientSynchronizer::verify_in_sync() { impl_->verify_in_sync(); }
void GradientSynchronizer::register_comm_hook(std::shared_ptr<CommHook> hook) {
  impl_->register_comm_hook(std::move(hook));
}
StragglerReport GradientSynchronizer::stragglers() { return impl_->reducer().stragglers(); }
const DdpLoggingData& GradientSynchronizer::logging_data() const { return impl_->reducer().logging_data(); }
const std::shared_ptr<ProcessGroup>& GradientSynchronizer::process_group() const { return impl_->group(); }

GradientSynchronizer::NoSync::NoSync(GradientSynchronizer& synchronizer) : synchronizer_(synchronizer) {
  synchronizer_.impl_->reducer().begin_no_sync();
}
GradientSynchronizer::NoSync::~NoSync() { synchronizer_.impl_->reducer().end_no_sync(); }

std::string to_string(const DdpLoggingData& data) {
  return fmt::format(
      "rank {} of {} ({}){}: {} gradients of {:.1f} MiB in {} buckets of [{:.2f}] MiB{}; forward {:.2f} ms, backward "
      "{:.2f} ms, "
      "communication {:.2f} ms, of it {:.2f} ms overlapped and {:.2f} ms exposed; {:.0f} % without a copy, {:.1f} MiB "
      "copied "
      "because their memory was shared",
      data.rank, data.world_size, data.backend, data.comm_hook.empty() ? "" : ", hook " + data.comm_hook,
      data.parameter_count, static_cast<double>(data.parameter_bytes) / 1048576, data.bucket_bytes.size(),
      fmt::join(
          [&] {
            std::vector<double> sizes;
            for (std::int64_t bytes : data.bucket_bytes) sizes.push_back(static_cast<double>(bytes) / 1048576);
            return sizes;
          }(),
          ", "),
      data.buckets_rebuilt ? " (rebuilt)" : "", data.forward_seconds * 1e3, data.backward_compute_seconds * 1e3,
      data.backward_communication_seconds * 1e3, data.overlap_seconds * 1e3, data.exposed_communication_seconds * 1e3,
      data.zero_copy_fraction * 100, static_cast<double>(data.copied_bytes) / 1048576);
}

}  // namespace lockstep
