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

}  // namespace lockstep::detail
