#include "lockstep/ddp/functional.h"

#include <fmt/format.h>

#include "base/invalid_argument.h"
#include "ddp/functional/linear_collective.h"

namespace lockstep::functional {

namespace {

using detail::apply_collective;
using Adjoint = std::shared_ptr<const detail::LinearCollective>;

// The group of a call, and the one that its backward uses.
struct Route {
  std::shared_ptr<ProcessGroup> group;
  std::shared_ptr<ProcessGroup> companion;
  std::optional<std::chrono::milliseconds> timeout;

  Route backward() const { return {companion, companion, timeout}; }
  TensorCallOptions call() const { return {.group = group, .timeout = timeout}; }
  TensorReduceOptions reduction(ReduceOp op) const { return {.op = op, .group = group, .timeout = timeout}; }
  int size() const { return group->size(); }
  // `root` is a rank of the group; the collectives take global ranks.
  int global(int root) const { return group->global_rank(root); }
  bool is(int root) const { return group->rank() == root; }
};

at::Tensor copy_of(const at::Tensor& tensor) { return tensor.detach().clone(at::MemoryFormat::Contiguous); }
at::Tensor space_like(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().requires_grad(false));
}
// Of the same type, with dimension 0 replaced by `rows`.
at::Tensor space_of_rows(const at::Tensor& like, std::int64_t rows) {
  std::vector<std::int64_t> shape = like.sizes().vec();
  shape[0] = rows;
  return at::empty(shape, like.options().requires_grad(false));
}

class Collective : public detail::LinearCollective {
 public:
  explicit Collective(Route route) : route_(std::move(route)) {}
  int number_of_call() const override { return route_.companion->next_label(); }

 protected:
  const Route route_;
};

class AllReduce : public Collective {
 public:
  AllReduce(Route route, ReduceOp op) : Collective(std::move(route)), op_(op) {}
  at::Tensor run(const at::Tensor& input) const override {
    at::Tensor result = copy_of(input);
    lockstep::all_reduce(result, route_.reduction(op_));
    return result;
  }
  Adjoint adjoint() const override { return std::make_shared<AllReduce>(route_.backward(), op_); }

 private:
  ReduceOp op_;
};

// Divided by the number of ranks if `op` is avg: the adjoint of a reduction with that operation.
class Broadcast : public Collective {
 public:
  Broadcast(Route route, int root, ReduceOp op) : Collective(std::move(route)), root_(root), op_(op) {}
  at::Tensor run(const at::Tensor& input) const override {
    at::Tensor result = route_.is(root_) ? copy_of(input) : space_like(input);
    lockstep::broadcast(result, route_.global(root_), route_.call());
    return op_ == ReduceOp::avg ? result.div_(route_.size()) : result;
  }
  Adjoint adjoint() const override;

 private:
  int root_;
  ReduceOp op_;
};

class Reduce : public Collective {
 public:
  Reduce(Route route, int root, ReduceOp op) : Collective(std::move(route)), root_(root), op_(op) {}
  at::Tensor run(const at::Tensor& input) const override {
    at::Tensor result = copy_of(input);
    lockstep::reduce(result, route_.global(root_), route_.reduction(op_));
    return route_.is(root_) ? result : result.zero_();
  }
  Adjoint adjoint() const override { return std::make_shared<Broadcast>(route_.backward(), root_, op_); }

 private:
  int root_;
  ReduceOp op_;
};

Adjoint Broadcast::adjoint() const { return std::make_shared<Reduce>(route_.backward(), root_, op_); }

// Along dimension 0; divided by the number of ranks if `op` is avg.
class AllGather : public Collective {
 public:
  AllGather(Route route, ReduceOp op) : Collective(std::move(route)), op_(op) {}
  at::Tensor run(const at::Tensor& input) const override {
    at::Tensor result = space_of_rows(input, input.size(0) * route_.size());
    all_gather_into_tensor(result, input, route_.call());
    return op_ == ReduceOp::avg ? result.div_(route_.size()) : result;
  }
  Adjoint adjoint() const override;

 private:
  ReduceOp op_;
};

class ReduceScatter : public Collective {
 public:
  ReduceScatter(Route route, ReduceOp op) : Collective(std::move(route)), op_(op) {}
  at::Tensor run(const at::Tensor& input) const override {
    at::Tensor result = space_of_rows(input, input.size(0) / route_.size());
    lockstep::reduce_scatter_tensor(result, input, route_.reduction(op_));
    return result;
  }
  Adjoint adjoint() const override { return std::make_shared<AllGather>(route_.backward(), op_); }

 private:
  ReduceOp op_;
};

Adjoint AllGather::adjoint() const { return std::make_shared<ReduceScatter>(route_.backward(), op_); }

// From a tensor to a row for each rank, on the root; zeros elsewhere.
class Gather : public Collective {
 public:
  Gather(Route route, int root) : Collective(std::move(route)), root_(root) {}
  at::Tensor run(const at::Tensor& input) const override {
    std::vector<std::int64_t> shape = input.sizes().vec();
    shape.insert(shape.begin(), route_.size());
    at::Tensor result = at::zeros(shape, input.options().requires_grad(false));
    lockstep::gather(input, route_.is(root_) ? result.unbind(0) : std::vector<at::Tensor>{}, route_.global(root_),
                     route_.call());
    return result;
  }
  Adjoint adjoint() const override;

 private:
  int root_;
};

class Scatter : public Collective {
 public:
  Scatter(Route route, int root) : Collective(std::move(route)), root_(root) {}
  at::Tensor run(const at::Tensor& input) const override {
    at::Tensor result = space_like(input.select(0, 0));
    lockstep::scatter(result, route_.is(root_) ? input.detach().unbind(0) : std::vector<at::Tensor>{},
                      route_.global(root_), route_.call());
    return result;
  }
  Adjoint adjoint() const override { return std::make_shared<Gather>(route_.backward(), root_); }

 private:
  int root_;
};

Adjoint Gather::adjoint() const { return std::make_shared<Scatter>(route_.backward(), root_); }

class AllToAll : public Collective {
 public:
  explicit AllToAll(Route route) : Collective(std::move(route)) {}
  at::Tensor run(const at::Tensor& input) const override {
    at::Tensor result = space_like(input);
    lockstep::all_to_all_single(result, input, route_.call());
    return result;
  }
  Adjoint adjoint() const override { return std::make_shared<AllToAll>(route_.backward()); }
};

class AllToAllOfSplits : public Collective {
 public:
  AllToAllOfSplits(Route route, AllToAllSplits splits) : Collective(std::move(route)), splits_(std::move(splits)) {}
  at::Tensor run(const at::Tensor& input) const override {
    std::int64_t rows = 0;
    for (const std::int64_t split : splits_.output) rows += split;
    at::Tensor result = space_of_rows(input, rows);
    lockstep::all_to_all_single(result, input, splits_, route_.call());
    return result;
  }
  Adjoint adjoint() const override {
    return std::make_shared<AllToAllOfSplits>(route_.backward(), AllToAllSplits{splits_.input, splits_.output});
  }

 private:
  AllToAllSplits splits_;
};

Route route_of(const std::shared_ptr<ProcessGroup>& group, std::optional<std::chrono::milliseconds> timeout) {
  const auto here = group_or_default(group);
  return {here, here->companion("functional"), timeout};
}
Route route_of(const TensorCallOptions& options) { return route_of(options.group, options.timeout); }

Route route_of(const char* operation, const TensorReduceOptions& options) {
  if (options.op != ReduceOp::sum && options.op != ReduceOp::avg) {
    throw_invalid_argument(
        operation, fmt::format("{} has no derivative here: use sum or avg, or lockstep::{}() on a detached tensor",
                               to_string(options.op), operation));
  }
  return route_of(options.group, options.timeout);
}

int root_of(const char* operation, int global_rank, const Route& route) {
  const int root = route.group->group_rank(global_rank);
  if (root < 0) throw_invalid_argument(operation, fmt::format("global rank {} is not in the group", global_rank));
  return root;
}

void check_defined(const char* operation, const at::Tensor& input) {
  if (!input.defined()) throw_invalid_argument(operation, "the tensor is undefined");
}

// With a dimension 0.
at::Tensor rows(const char* operation, const at::Tensor& input) {
  check_defined(operation, input);
  return input.dim() == 0 ? input.unsqueeze(0) : input;
}

at::Tensor divisible_rows(const char* operation, const at::Tensor& input, const Route& route) {
  check_defined(operation, input);
  if (input.dim() == 0 || input.size(0) % route.size() != 0) {
    throw_invalid_argument(operation, fmt::format("{} rows (dimension 0) cannot be split evenly between {} ranks",
                                                  input.dim() == 0 ? 0 : input.size(0), route.size()));
  }
  return input;
}

// One row for each rank.
at::Tensor stacked(const char* operation, const std::vector<at::Tensor>& inputs, const Route& route) {
  if (inputs.size() != static_cast<std::size_t>(route.size())) {
    throw_invalid_argument(operation,
                           fmt::format("there are {} inputs, but the group has {} ranks", inputs.size(), route.size()));
  }
  for (const at::Tensor& input : inputs) {
    check_defined(operation, input);
    if (input.sizes() != inputs[0].sizes() || input.scalar_type() != inputs[0].scalar_type()) {
      throw_invalid_argument(operation, "all inputs must have the same shape and type");
    }
  }
  return at::stack(inputs);
}

}  // namespace

at::Tensor all_reduce(const at::Tensor& input, const TensorReduceOptions& options) {
  check_defined("all_reduce", input);
  return apply_collective(std::make_shared<AllReduce>(route_of("all_reduce", options), options.op), input);
}

at::Tensor reduce(const at::Tensor& input, int dst, const TensorReduceOptions& options) {
  check_defined("reduce", input);
  const Route route = route_of("reduce", options);
  return apply_collective(std::make_shared<Reduce>(route, root_of("reduce", dst, route), options.op), input);
}

at::Tensor broadcast(const at::Tensor& input, int src, const TensorCallOptions& options) {
  check_defined("broadcast", input);
  const Route route = route_of(options);
  return apply_collective(std::make_shared<Broadcast>(route, root_of("broadcast", src, route), ReduceOp::sum), input);
}

std::vector<at::Tensor> all_gather(const at::Tensor& input, const TensorCallOptions& options) {
  check_defined("all_gather", input);
  return apply_collective(std::make_shared<AllGather>(route_of(options), ReduceOp::sum), input.unsqueeze(0)).unbind(0);
}

at::Tensor all_gather_into_tensor(const at::Tensor& input, const TensorCallOptions& options) {
  return apply_collective(std::make_shared<AllGather>(route_of(options), ReduceOp::sum),
                          rows("all_gather_into_tensor", input));
}

at::Tensor reduce_scatter(const std::vector<at::Tensor>& inputs, const TensorReduceOptions& options) {
  const Route route = route_of("reduce_scatter", options);
  return apply_collective(std::make_shared<ReduceScatter>(route, options.op), stacked("reduce_scatter", inputs, route))
      .squeeze(0);
}

at::Tensor reduce_scatter_tensor(const at::Tensor& input, const TensorReduceOptions& options) {
  const Route route = route_of("reduce_scatter_tensor", options);
  return apply_collective(std::make_shared<ReduceScatter>(route, options.op),
                          divisible_rows("reduce_scatter_tensor", input, route));
}

std::vector<at::Tensor> gather(const at::Tensor& input, int dst, const TensorCallOptions& options) {
  check_defined("gather", input);
  const Route route = route_of(options);
  return apply_collective(std::make_shared<Gather>(route, root_of("gather", dst, route)), input).unbind(0);
}

at::Tensor scatter(const std::vector<at::Tensor>& inputs, int src, const TensorCallOptions& options) {
  const Route route = route_of(options);
  return apply_collective(std::make_shared<Scatter>(route, root_of("scatter", src, route)),
                          stacked("scatter", inputs, route));
}

std::vector<at::Tensor> all_to_all(const std::vector<at::Tensor>& inputs, const TensorCallOptions& options) {
  const Route route = route_of(options);
  return apply_collective(std::make_shared<AllToAll>(route), stacked("all_to_all", inputs, route)).unbind(0);
}

at::Tensor all_to_all_single(const at::Tensor& input, const TensorCallOptions& options) {
  const Route route = route_of(options);
  return apply_collective(std::make_shared<AllToAll>(route), divisible_rows("all_to_all_single", input, route));
}

at::Tensor all_to_all_single(const at::Tensor& input, const AllToAllSplits& splits, const TensorCallOptions& options) {
  check_defined("all_to_all_single", input);
  if (input.dim() == 0) throw_invalid_argument("all_to_all_single", "a tensor without dimensions cannot be split");
  return apply_collective(std::make_shared<AllToAllOfSplits>(route_of(options), splits), input);
}

}  // namespace lockstep::functional
