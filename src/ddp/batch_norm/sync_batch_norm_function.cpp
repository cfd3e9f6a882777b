#include "ddp/batch_norm/sync_batch_norm_function.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <vector>

#include "base/invalid_argument.h"
#include "ddp/group/operation_label.h"
#include "ddp/sync/model_labels.h"
#include "ddp/sync/sample_weight.h"

namespace lockstep::detail {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct CallCapsule : torch::CustomClassHolder {
  CallCapsule(std::shared_ptr<ProcessGroup> of_call, SampleWeight of_samples)
      : group(std::move(of_call)), weight(std::move(of_samples)), number(group->next_label()) {}
  std::shared_ptr<ProcessGroup> group;
  SampleWeight weight;  // null: 1
  int number;           // of the forward, the same on all ranks
};

// Of the values of each channel; f64, on the input's device.
struct Moments {
  double count = 0;
  at::Tensor mean;
  at::Tensor squares;  // sum of squared distances from the mean
};

Moments local_moments(const at::Tensor& input) {
  const std::int64_t channels = input.size(1);
  if (input.numel() == 0) {
    const auto options = input.options().dtype(at::kDouble);
    return {0, at::zeros({channels}, options), at::zeros({channels}, options)};
  }
  auto [mean, variance] = at::batch_norm_update_stats(input, {}, {}, 0);
  const double count = static_cast<double>(input.numel()) / static_cast<double>(channels);
  return {count, mean.to(at::kDouble), variance.to(at::kDouble).mul_(count)};
}

// Every rank's count, on the CPU. The host has its own already, so it need not wait for a device.
at::Tensor gather_counts(double mine, ProcessGroup& group) {
  const at::Tensor all = at::empty({group.size()}, at::kDouble);
  group.all_gather(at::full({1}, mine, at::kDouble), all, {}).wait();
  return all;
}

// Chan's parallel form: no difference of large numbers. In rank order, so all ranks get the same bits.
Moments global_moments(const Moments& mine, ProcessGroup& group) {
  const std::int64_t channels = mine.mean.numel();
  const at::TensorOptions options = mine.mean.options();
  const at::Tensor packed = at::cat({at::full({1}, mine.count, options), mine.mean, mine.squares});
  const at::Tensor all = at::empty({group.size(), packed.numel()}, options);
  group.all_gather(packed, all, {}).wait();
  const at::Tensor counts = all.is_cpu() ? all.select(1, 0) : gather_counts(mine.count, group);
  Moments total{0, at::zeros({channels}, options), at::zeros({channels}, options)};
  for (int r = 0; r < group.size(); ++r) {
    const at::Tensor row = all[r];
    const double count = counts[r].item<double>();
    if (count == 0) continue;
    const double sum = total.count + count;
    const at::Tensor delta = row.narrow(0, 1, channels) - total.mean;
    total.mean.add_(delta, count / sum);
    total.squares.add_(row.narrow(0, 1 + channels, channels)).add_(delta.square(), total.count * count / sum);
    total.count = sum;
  }
  return total;
}

void update_running(const at::Tensor& running, const at::Tensor& now, double momentum) {
  if (running.defined()) running.mul_(1 - momentum).add_(now.to(running.scalar_type()), momentum);
}

at::Tensor per_channel(const at::Tensor& values, const at::Tensor& like) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(like.dim()), 1);
  shape[1] = values.numel();
  return values.to(like.scalar_type()).view(shape);
}

torch::optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? torch::optional<at::Tensor>(tensor) : torch::nullopt;
}

class SyncBatchNormFunction : public torch::autograd::Function<SyncBatchNormFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const torch::optional<at::Tensor>& weight, const torch::optional<at::Tensor>& bias,
                            const BatchNormCall& call, const std::shared_ptr<ProcessGroup>& group) {
    const Moments moments = [&] {
      const OperationLabel label(label_of_layer({call.weight, call.bias, call.running_mean, call.running_var}));
      return global_moments(local_moments(input), *group);
    }();
    if (moments.count == 1) {
      throw Error(
          {StatusCode::invalid_argument,
           fmt::format("SyncBatchNorm: {} value per channel on all {} ranks together; training needs at least 2",
                       moments.count, group->size())});
    }
    if (moments.count > 0) {  // batches may be empty on all ranks
      update_running(call.running_mean, moments.mean, call.momentum);
      update_running(call.running_var, moments.squares / (moments.count - 1), call.momentum);
    }
    const at::Tensor mean = moments.mean.to(input.scalar_type());
    const at::Tensor variance = (moments.squares / moments.count).to(input.scalar_type());
    context->save_for_backward({input, call.weight, mean, variance});
    context->saved_data["count"] = moments.count;
    context->saved_data["eps"] = call.eps;
    context->saved_data["group"] = c10::IValue::make_capsule(c10::make_intrusive<CallCapsule>(group, sample_weight()));
    if (input.numel() == 0) return at::empty_like(input);
    // Normalising with given statistics is what torch's kernel does in evaluation.
    return std::get<0>(at::native_batch_norm(input, weight, bias, mean, variance, false, 0, call.eps));
  }

  static variable_list backward(AutogradContext* context, variable_list output_gradients) {
    if (c10::GradMode::is_enabled()) {
      throw Error({StatusCode::invalid_argument,
                   "SyncBatchNorm: backward(create_graph = true) does not work through it, because the exchange "
                   "between ranks is not differentiated"});
    }
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1], &mean = saved[2], &variance = saved[3];
    const at::Tensor gradient = output_gradients[0].contiguous(input.suggest_memory_format());
    const double eps = context->saved_data["eps"].toDouble();
    const auto& call = static_cast<CallCapsule&>(*context->saved_data["group"].toCapsule());
    // d loss / d weight and d bias of this rank: DDP averages them like any gradient.
    at::Tensor weight_gradient = at::zeros_like(mean), bias_gradient = at::zeros_like(mean);
    if (input.numel() != 0) {
      std::tie(std::ignore, weight_gradient, bias_gradient) = at::native_batch_norm_backward(
          gradient, input, optional(weight), mean, variance, {}, {}, false, eps, {false, true, true});
    }
    const OperationLabel label(call.number);
    const at::Tensor local = at::stack({weight_gradient, bias_gradient}).to(at::kDouble);
    const auto add = [&](const at::Tensor& weighted) {
      call.group->all_reduce(weighted, {}).wait();
      return weighted;
    };
    const at::Tensor sums = add_weighted(call.weight, local, add).div_(context->saved_data["count"].toDouble());
    variable_list gradients(5);
    if (context->needs_input_grad(0)) {
      gradients[0] = input_gradient(gradient, input, weight, mean, (variance.to(at::kDouble) + eps).rsqrt(), sums);
    }
    if (weight.defined()) {
      gradients[1] = weight_gradient;
      gradients[2] = bias_gradient;
    }
    return gradients;
  }

 private:
  // weight * deviation^-1 * (dy - mean(dy) - x_hat * mean(dy * x_hat)); `means`: of dy * x_hat and of dy.
  static at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
                                   const at::Tensor& mean, const at::Tensor& inverse_deviation,
                                   const at::Tensor& means) {
    at::Tensor result = input - per_channel(mean, input);
    result.mul_(per_channel(inverse_deviation * means[0], input)).add_(per_channel(means[1], input));
    at::sub_out(result, gradient, result);
    return result.mul_(
        per_channel(weight.defined() ? inverse_deviation * weight.to(at::kDouble) : inverse_deviation, input));
  }
};

void check(const BatchNormCall& call) {
  const at::ScalarType type = call.input.scalar_type();
  if (type != at::kFloat && type != at::kDouble) {
    throw_invalid_argument("SyncBatchNorm",
                           fmt::format("the input is of type {}; float and double work", c10::toString(type)));
  }
  for (const at::Tensor& tensor : {call.weight, call.bias, call.running_mean, call.running_var}) {
    if (!tensor.defined()) continue;
    if (tensor.numel() != call.input.size(1)) {
      throw_invalid_argument(
          "SyncBatchNorm", fmt::format("the input has {} channels, the layer {}", call.input.size(1), tensor.numel()));
    }
    if (tensor.scalar_type() != type) {
      throw_invalid_argument("SyncBatchNorm",
                             fmt::format("the input is of type {}, the layer's tensors of type {}; convert one of them",
                                         c10::toString(type), c10::toString(tensor.scalar_type())));
    }
  }
}

}  // namespace

at::Tensor sync_batch_norm(const BatchNormCall& call, const std::shared_ptr<ProcessGroup>& group) {
  check(call);
  throw_if_error(group->check(call.input, std::nullopt).with_context("SyncBatchNorm"));
  const at::Tensor input = call.input.contiguous(call.input.suggest_memory_format());
  return SyncBatchNormFunction::apply(input, optional(call.weight), optional(call.bias), call, group);
}

}  // namespace lockstep::detail
