#include "lockstep/ddp/gradient_synchronizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unordered_set>

#include "ddp/reducer.h"
#include "ddp/replica_state.h"
#include "lockstep/ddp/init.h"

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

std::vector<at::Tensor> tensors_of(const NamedTensors& named) {
  std::vector<at::Tensor> result;
  for (const auto& item : named) result.push_back(item.second);
  return result;
}

}  // namespace

class GradientSynchronizer::Impl {
 public:
  Impl(const NamedTensors& parameters, const NamedTensors& buffers, const DdpOptions& options)
      : options_(options),
        group_(group_or_default(options.process_group)),
        parameters_(selected(parameters, options.parameters_to_ignore)),
        buffers_(selected(buffers, options.parameters_to_ignore)),
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
    reducer_ = std::make_unique<detail::Reducer>(group_, trained, options_);
  }

  void before_forward(std::int64_t samples) {
    if (!c10::GradMode::is_enabled()) return;
    forward_begin_ = detail::PassClock::Clock::now();
    at::NoGradGuard no_grad;
    reducer_->check_last_pass();
    const bool synchronise = reducer_->synchronise();
    if (joining_) exchange_presence(true, synchronise);
    if (options_.sample_weighted) {
      if (!synchronise) {
        throw Error(
            {StatusCode::invalid_argument,
             "DdpOptions::sample_weighted does not work with no_sync(): the batches that are accumulated would get "
             "the weight of the last one. Pass the whole batch to one forward"});
      }
      samples_ = next_samples_ >= 0 ? next_samples_ : samples;
      next_samples_ = -1;
      if (samples_ < 0) {
        throw Error({StatusCode::invalid_argument,
                     "DdpOptions::sample_weighted: forward has no tensor argument to count samples by; call "
                     "set_sample_count() before it"});
      }
      count_samples();
    }
    reducer_->set_scale([this] { return scale(); });
    if (synchronise && options_.broadcast_buffers) detail::broadcast_tensors(*group_, tensors_of(buffers_), authority_);
    if (synchronise && !joining_ && options_.verify_every > 0 && ++forwards_ % options_.verify_every == 0)
      verify_in_sync();
  }

  void after_forward(const std::vector<at::Tensor>& outputs) {
    if (!c10::GradMode::is_enabled()) return;
    reducer_->expect_backward(outputs);
    reducer_->logging_data().forward_seconds =
        std::chrono::duration<double>(detail::PassClock::Clock::now() - forward_begin_).count();
  }

  void join(const std::function<void()>& train_loop, const JoinOptions& options) {
    if (joining_) throw Error({StatusCode::invalid_argument, "join: this rank is inside join() already"});
    joining_ = true;
    divide_by_active_ = !options.divide_by_initial_world_size;
    try {
      train_loop();
      at::NoGradGuard no_grad;
      reducer_->check_last_pass();
      while (exchange_presence(false, false)) shadow_step();
      detail::broadcast_tensors(*group_, all_tensors(), authority_);
    } catch (const std::exception& error) {
      joining_ = false;
      group_->abort(fmt::format("rank {} left join() with an exception: {}", group_->rank(), error.what()));
      throw;
    }
    joining_ = false;
    active_ = group_->size();
    authority_ = 0;
    reducer_->set_authority(0);
  }

  void verify_in_sync() {
    at::NoGradGuard no_grad;
    if (options_.broadcast_buffers) detail::broadcast_tensors(*group_, tensors_of(buffers_), authority_);
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
  const std::shared_ptr<TensorGroup>& group() const { return group_; }

 private:
  std::vector<at::Tensor> all_tensors() const {
    std::vector<at::Tensor> all = tensors_of(parameters_);
    for (const auto& item : buffers_) all.push_back(item.second);
    return all;
  }

  void count_samples() {
    total_samples_ = at::full({1}, samples_, at::kLong);
    counted_ = group_->all_reduce(total_samples_, {});
  }

  double scale() {
    if (options_.sample_weighted) {
      counted_.wait();
      const auto total = static_cast<double>(total_samples_.item<std::int64_t>());
      return total > 0 ? static_cast<double>(samples_) * group_->size() / total : 0.0;
    }
    return divide_by_active_ ? static_cast<double>(group_->size()) / active_ : 1.0;
  }

  // Tells who still trains; false if nobody does.
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
    authority_ = lowest;
    reducer_->set_authority(lowest);
    return true;
  }

  // What the others do in one step, without a forward of our own.
  void shadow_step() {
    samples_ = 0;
    if (options_.sample_weighted) count_samples();
    reducer_->set_scale([this] { return scale(); });
    if (!others_synchronise_) return;
    if (options_.broadcast_buffers) detail::broadcast_tensors(*group_, tensors_of(buffers_), authority_);
    reducer_->shadow_pass();
  }

  const DdpOptions options_;
  const std::shared_ptr<TensorGroup> group_;
  const NamedTensors parameters_;
  const NamedTensors buffers_;
  std::unique_ptr<detail::Reducer> reducer_;

  detail::PassClock::Clock::time_point forward_begin_{};
  std::int64_t forwards_ = 0;
  std::int64_t next_samples_ = -1;
  std::int64_t samples_ = 0;
  at::Tensor total_samples_;
  Work counted_;
  bool joining_ = false;
  bool divide_by_active_ = false;
  bool others_synchronise_ = false;
  int active_;         // how many ranks still train
  int authority_ = 0;  // the first of them
};

GradientSynchronizer::GradientSynchronizer(NamedTensors parameters, NamedTensors buffers, const DdpOptions& options)
    : impl_(std::make_unique<Impl>(parameters, buffers, options)) {}

GradientSynchronizer::~GradientSynchronizer() = default;

void GradientSynchronizer::before_forward(std::int64_t samples) { impl_->before_forward(samples); }
void GradientSynchronizer::after_forward(const std::vector<at::Tensor>& outputs) { impl_->after_forward(outputs); }
void GradientSynchronizer::set_sample_count(std::int64_t samples) { impl_->set_sample_count(samples); }
void GradientSynchronizer::join(const std::function<void()>& train_loop, const JoinOptions& options) {
  impl_->join(train_loop, options);
}
void GradientSynchronizer::verify_in_sync() { impl_->verify_in_sync(); }
void GradientSynchronizer::register_comm_hook(std::shared_ptr<CommHook> hook) {
  impl_->register_comm_hook(std::move(hook));
}
const DdpLoggingData& GradientSynchronizer::logging_data() const { return impl_->reducer().logging_data(); }
const std::shared_ptr<TensorGroup>& GradientSynchronizer::process_group() const { return impl_->group(); }

GradientSynchronizer::NoSync::NoSync(GradientSynchronizer& synchronizer)
    : synchronizer_(synchronizer), before_(synchronizer.impl_->reducer().synchronise()) {
  synchronizer_.impl_->reducer().set_synchronise(false);
}
GradientSynchronizer::NoSync::~NoSync() { synchronizer_.impl_->reducer().set_synchronise(before_); }

std::string to_string(const DdpLoggingData& data) {
  return fmt::format(
      "rank {} of {} ({}){}: {} gradients of {:.1f} MiB in {} buckets of [{:.2f}] MiB{}; forward {:.2f} ms, backward "
      "{:.2f} ms, "
      "communication {:.2f} ms, of it {:.2f} ms overlapped and {:.2f} ms exposed; {:.0f} % without a copy",
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
      data.zero_copy_fraction * 100);
}

}  // namespace lockstep
