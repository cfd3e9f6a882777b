// PowerSGD (Vogels, Karimireddy, Jaggi: PowerSGD, NeurIPS 2019).
//
// A gradient M (rows x columns, with what was lost before added to it) is approximated by P * transposed(Q), by
// one step of subspace iteration that all ranks make together:
//   run():        P = M Q, averaged               with Q from the previous step, orthonormal
//   project():    P orthonormal; Q = M^T P, averaged
//   reconstruct(): gradient = P Q^T; the part of M that this lacks is kept for the next step
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "ddp/elastic/running.h"
#include "ddp/hooks/low_rank.h"
#include "lockstep/ddp/hooks.h"

namespace lockstep {

namespace {

using detail::MatrixView;

// What is kept of a parameter from step to step. Found by parameter, not by bucket: DDP rebuilds buckets.
struct Memory {
  at::Tensor q;      // columns x rank
  at::Tensor error;  // rows x columns
};

// One gradient in flight.
struct Factored {
  at::Tensor gradient;
  Memory* memory = nullptr;
  std::int64_t rows = 0, columns = 0, rank = 0;
  at::Tensor matrix, p, q;
  bool finite = true;
};

// One bucket in flight.
struct Step {
  std::vector<Factored> factored;
  std::vector<at::Tensor> plain;  // gradients that are not compressed
  at::Tensor plain_values, p_values, q_values;
};

MatrixView view(const at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.size(0)), static_cast<std::size_t>(tensor.size(1))};
}

bool finite(const at::Tensor& tensor) {
  return detail::all_finite({tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())});
}

at::Tensor take(const at::Tensor& flat, std::int64_t& offset, std::int64_t rows, std::int64_t columns) {
  const at::Tensor part = flat.narrow(0, offset, rows * columns).view({rows, columns});
  offset += rows * columns;
  return part;
}

class PowerSgdHook final : public CommHook {
 public:
  explicit PowerSgdHook(const PowerSgdOptions& options) : options_(options), random_(options.seed) {}
  const char* name() const override { return "power_sgd"; }

  HookFuture run(const GradBucket& bucket, ProcessGroup& group) override {
    const bool started = iteration_ >= options_.start_iteration;
    if (bucket.is_last()) ++iteration_;
    if (group.size() == 1) return {};
    if (!started || bucket.buffer().scalar_type() != at::kFloat || !bucket.buffer().is_cpu()) {
      return group.all_reduce(bucket.buffer(), {.op = ReduceOp::avg});
    }
    auto step = std::make_shared<Step>();
    sort_gradients(bucket, *step);
    if (step->factored.empty()) return group.all_reduce(bucket.buffer(), {.op = ReduceOp::avg});

    std::vector<Work> works;
    if (!step->plain.empty()) works.push_back(send_plain(*step, group));
    for (Factored& each : step->factored) begin(each);
    multiply_into_p(*step);
    works.push_back(group.all_reduce(step->p_values, {.op = ReduceOp::avg}));
    return HookFuture(std::move(works), [step, &group] { return project(step, group); });
  }

 private:
  void sort_gradients(const GradBucket& bucket, Step& step) {
    for (std::size_t i = 0; i < bucket.gradients().size(); ++i) {
      const at::Tensor& gradient = bucket.gradients()[i];
      Factored each;
      each.gradient = gradient;
      each.rows = gradient.dim() > 0 ? gradient.size(0) : 0;
      each.columns = each.rows > 0 ? gradient.numel() / each.rows : 0;
      each.rank = std::min({options_.matrix_approximation_rank, each.rows, each.columns});
      const double compressed = static_cast<double>((each.rows + each.columns) * each.rank);
      if (gradient.dim() < 2 || each.rank == 0 ||
          compressed * options_.min_compression_rate >= static_cast<double>(gradient.numel())) {
        step.plain.push_back(gradient);
        continue;
      }
      each.memory = &memories_[bucket.parameters()[i].unsafeGetTensorImpl()];
      step.factored.push_back(std::move(each));
    }
  }

  static Work send_plain(Step& step, ProcessGroup& group) {
    std::vector<at::Tensor> flat;
    for (const at::Tensor& gradient : step.plain) flat.push_back(gradient.reshape({-1}));
    step.plain_values = at::cat(flat);
    return group.all_reduce(step.plain_values, {.op = ReduceOp::avg});
  }

  // M, and a Q to begin with. Every rank draws the same random values, because buckets have the same order on all
  // ranks.
  void begin(Factored& each) {
    const at::Tensor gradient = each.gradient.reshape({each.rows, each.columns});
    Memory& memory = *each.memory;
    if (options_.use_error_feedback) {
      if (memory.error.defined()) {
        memory.error.add_(gradient);
      } else {
        memory.error = gradient.clone(at::MemoryFormat::Contiguous);
      }
      each.matrix = memory.error;
    } else {
      each.matrix = gradient;
    }
    if (!memory.q.defined() || !options_.warm_start) {
      memory.q = at::empty({each.columns, each.rank}, gradient.options());
      detail::fill_random(view(memory.q), random_);
    }
    detail::orthonormalise(view(memory.q), &random_);
  }

  static void multiply_into_p(Step& step) {
    std::int64_t count = 0;
    for (const Factored& each : step.factored) count += each.rows * each.rank;
    step.p_values = at::empty({count}, at::kFloat);
    std::int64_t offset = 0;
    for (Factored& each : step.factored) {
      each.p = take(step.p_values, offset, each.rows, each.rank);
      at::mm_out(each.p, each.matrix, each.memory->q);
    }
  }

  static HookFuture project(const std::shared_ptr<Step>& step, ProcessGroup& group) {
    std::int64_t count = 0;
    for (const Factored& each : step->factored) count += each.columns * each.rank;
    step->q_values = at::zeros({count}, at::kFloat);
    std::int64_t offset = 0;
    for (Factored& each : step->factored) {
      each.q = take(step->q_values, offset, each.columns, each.rank);
      each.finite = finite(each.p);
      if (!each.finite) continue;
      detail::orthonormalise(view(each.p));
      at::mm_out(each.q, each.matrix.t(), each.p);
    }
    return HookFuture({group.all_reduce(step->q_values, {.op = ReduceOp::avg})}, [step]() -> HookFuture {
      reconstruct(*step);
      return {};
    });
  }

  static void reconstruct(Step& step) {
    std::int64_t offset = 0;
    for (const at::Tensor& gradient : step.plain) {
      gradient.copy_(step.plain_values.narrow(0, offset, gradient.numel()).view(gradient.sizes()));
      offset += gradient.numel();
    }
    for (Factored& each : step.factored) {
      // P and Q are the same on all ranks, and so is this decision.
      if (!each.finite || !finite(each.q)) {
        each.gradient.fill_(std::numeric_limits<float>::quiet_NaN());
        *each.memory = {};
        continue;
      }
      const bool in_place = each.gradient.is_contiguous();
      const at::Tensor approximation =
          in_place ? each.gradient.view({each.rows, each.columns}) : at::empty({each.rows, each.columns}, at::kFloat);
      detail::multiply_transposed(view(each.p), view(each.q), approximation.data_ptr<float>());
      if (each.memory->error.defined()) each.memory->error.sub_(approximation);
      if (!in_place) each.gradient.copy_(approximation.view(each.gradient.sizes()));
      each.memory->q = each.q;
    }
  }

  const PowerSgdOptions options_;
  std::mt19937_64 random_;
  std::int64_t iteration_ = 0;
  std::unordered_map<const c10::TensorImpl*, Memory> memories_;
};

}  // namespace

std::shared_ptr<CommHook> power_sgd_hook(const PowerSgdOptions& options) {
  detail::refuse_in_elastic_job("power_sgd_hook");
  if (options.matrix_approximation_rank < 1 || options.start_iteration < 0 || !(options.min_compression_rate > 0)) {
    throw Error(
        {StatusCode::invalid_argument,
         fmt::format("power_sgd_hook: matrix_approximation_rank is {} and must be 1 or more, start_iteration is "
                     "{} and must be 0 or more, min_compression_rate is {} and must be above 0",
                     options.matrix_approximation_rank, options.start_iteration, options.min_compression_rate)});
  }
  return std::make_shared<PowerSgdHook>(options);
}

}  // namespace lockstep
