#include "ddp/sync/pass_errors.h"

#include <fmt/format.h>

namespace lockstep::detail {

std::string names_of(const NamedTensors& parameters, const std::vector<std::size_t>& indices) {
  constexpr std::size_t kShown = 10;
  std::string text;
  for (std::size_t i = 0; i < indices.size() && i < kShown; ++i) {
    text += fmt::format("{}\"{}\"", i == 0 ? "" : ", ", parameters[indices[i]].first);
  }
  if (indices.size() > kShown) text += fmt::format(" and {} more", indices.size() - kShown);
  return text;
}

std::string unfinished_pass_error(const DdpOptions& options, int rank, const NamedTensors& parameters,
                                  const std::vector<std::size_t>& missing, bool again) {
  if (again) {
    return fmt::format(
        "rank {}: parameters got gradients again after all had been averaged, in the same backward or in one without a "
        "forward of its own. If they are used in several re-entrant (checkpointed) segments, set "
        "DdpOptions::static_graph",
        rank);
  }
  if (options.static_graph) {
    return fmt::format(
        "rank {}: the graph has changed, though DdpOptions::static_graph promises that it does not: {} of {} "
        "parameters got fewer gradients in the last backward than in the first one: {}. Switch static_graph off, and "
        "set find_unused_parameters if the model does not always use all parameters",
        rank, missing.size(), parameters.size(), names_of(parameters, missing));
  }
  const std::string found = fmt::format("rank {}: {} of {} parameters got no gradient in the last backward: {}. ", rank,
                                        missing.size(), parameters.size(), names_of(parameters, missing));
  if (options.find_unused_parameters) {
    return found +
           "DdpOptions::find_unused_parameters does not help if backward() computes only chosen gradients: call it "
           "without a list of inputs";
  }
  return found +
         "If the model does not always use them, set DdpOptions::find_unused_parameters (or static_graph, if it is "
         "always the same ones); every output of forward() must take part in the loss";
}

std::string surplus_gradient_error(const DdpOptions& options, const std::string& name, bool skipped) {
  if (options.static_graph) {
    return fmt::format(
        "DistributedDataParallel: the graph has changed, though DdpOptions::static_graph promises that it does not: "
        "parameter \"{}\" got more gradients than in the first backward. Switch static_graph off, and set "
        "find_unused_parameters if the model does not always use all parameters",
        name);
  }
  return fmt::format(
      "DistributedDataParallel: parameter \"{}\" got {} gradient in one backward. If it is used in several re-entrant "
      "(checkpointed) segments, set DdpOptions::static_graph; if the loss depends on more than forward() returned, "
      "return that too",
      name, skipped ? "an unexpected" : "a second");
}

std::string gradient_error(const DdpOptions& options, const std::string& name, const at::Tensor& gradient,
                           bool delivered) {
  const auto text = [&](const std::string& why) {
    return fmt::format("DistributedDataParallel: the gradient of parameter \"{}\" {}", name, why);
  };
  if (!gradient.defined() && !delivered) {
    return text(
        fmt::format("is undefined: an autograd function of the program returned none. If that is intended, set "
                    "DdpOptions::find_unused_parameters{}",
                    options.static_graph ? " instead of static_graph" : ""));
  }
  if (!gradient.defined()) {
    return text(
        "is undefined after backward: a hook of the program removed it, or requires_grad was switched off between "
        "forward and backward");
  }
  if (gradient.layout() != at::kStrided) {
    return text("is sparse; make the layer produce dense gradients (sparse(false))");
  }
  if (gradient.requires_grad()) {
    return text(
        "has a graph of its own: backward(create_graph = true) does not work through DDP, because averaging is not "
        "differentiated. Use torch::autograd::grad for the inner derivative, or no_sync()");
  }
  return {};
}

std::string half_done_error(int rank) {
  return fmt::format(
      "rank {}: the last backward() ended with an exception after gradients had arrived, so this rank's gradients are "
      "incomplete and the other ranks wait for them. The training cannot continue; see that exception for the reason",
      rank);
}

std::string no_output_error(int rank) {
  return fmt::format(
      "rank {}: no output of this forward needs a gradient, so its backward could not be synchronised. Return every "
      "tensor that the loss depends on (GradientSynchronizer: pass them to after_forward()); evaluate under "
      "torch::NoGradGuard",
      rank);
}

std::string foreign_gradient_error(const std::string& name) {
  return fmt::format(
      "DistributedDataParallel: parameter \"{}\" got a gradient from a backward without a forward through DDP, which "
      "cannot be averaged. Call ddp(input) or ddp->forward(input) instead of the module's own forward "
      "(GradientSynchronizer: before_forward() and after_forward()). A term that is the same on all ranks, such as a "
      "penalty on the weights, belongs to the loss of the forward, or under no_sync()",
      name);
}

std::string nothing_to_average_error(int rank) {
  return fmt::format(
      "rank {}: no parameter got a gradient in the last backward, so this rank has nothing to average and the other "
      "ranks wait for it. If the loss does not always depend on the parameters, set DdpOptions::find_unused_parameters",
      rank);
}

std::string early_gradient_error(int rank) {
  return fmt::format(
      "rank {}: DdpOptions::sample_weighted: a parameter got a gradient before this backward reached the outputs of "
      "forward(), so that gradient was not weighted. Let forward() use all layers and return what the loss is computed "
      "from",
      rank);
}

std::string unweighted_error(int rank) {
  return fmt::format(
      "rank {}: DdpOptions::sample_weighted: this backward did not go through the outputs of forward(), so its "
      "gradients could not be weighted. Compute the loss from what forward() returned",
      rank);
}

std::string unequal_weights_error(int rank, double first, double second) {
  return fmt::format(
      "DdpOptions::sample_weighted: this backward goes through two forwards in which rank {} has different shares of "
      "the samples ({:.6g} and {:.6g} of the average), so its gradients cannot be weighted. Pass equally large batches "
      "to "
      "both, or call backward() for each",
      rank, first, second);
}

std::string mismatch_context(int rank, bool caught, bool several_models) {
  if (caught) {
    return fmt::format(
        "DistributedDataParallel: a backward() of rank {} ended with an exception that the program caught, so this "
        "rank is one step behind the others. Leave the training loop if a step fails on one rank",
        rank);
  }
  if (!several_models) return "";
  return "DistributedDataParallel: this process has several models. If one loss depends on two of them, and ranks may "
         "reach them in different orders (unused outputs or parameters), give each a group of its own: "
         "{.process_group = new_group(...)}";
}

}  // namespace lockstep::detail
