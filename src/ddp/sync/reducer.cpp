#include "ddp/sync/reducer.h"

#include <fmt/format.h>

#include <algorithm>

#include "ddp/group/operation_label.h"
#include "ddp/sync/backward_ends.h"
#include "ddp/sync/buckets/exclusive_memory.h"
#include "ddp/sync/buckets/gradient_order.h"
#include "ddp/sync/pass_errors.h"
#include "ddp/sync/sample_weight.h"
#include "ddp/sync/unused_parameters.h"
#include "ddp/torch_compat.h"

namespace lockstep::detail {

namespace {

std::vector<at::Tensor> tensors_of(const NamedTensors& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& item : named) tensors.push_back(item.second);
  return tensors;
}

}  // namespace

// Counts reducers, in the order in which they were made.
std::atomic<std::uint64_t> Reducer::made{0};

Reducer::Reducer(std::shared_ptr<ProcessGroup> group, NamedTensors parameters, const DdpOptions& options, int label)
    : group_(std::move(group)),
      parameters_(std::move(parameters)),
      options_(options),
      label_(label),
      number_(++made),
      buckets_(group_, tensors_of(parameters_), options, clock_),
      stragglers_(
          group_, clock_->steps(), [this](std::size_t bucket) { return describe_bucket(bucket); },
          options.straggler_report_every),
      static_(parameters_.size()),
      weights_(tensors_of(parameters_)),
      used_(group_, parameters_.size()),
      hooks_(parameters_, [this](std::size_t index, const at::Tensor& incoming) { on_gradient(index, incoming); }) {
  for (const auto& item : parameters_) logging_.parameter_bytes += static_cast<std::int64_t>(item.second.nbytes());
  logging_.parameter_count = static_cast<std::int64_t>(parameters_.size());
  logging_.world_size = group_->size();
  logging_.rank = group_->rank();
  logging_.backend = group_->backend();
  logging_.find_unused_parameters = options_.find_unused_parameters;
  logging_.static_graph = options_.static_graph;

  assign_buckets(reverse_order(parameters_.size()));
}

void Reducer::follow_accumulators() {
  std::lock_guard lock(mutex_);
  hooks_.follow();
}

void Reducer::assign_buckets(const std::vector<std::size_t>& order) {
  buckets_.assign(order);
  logging_.bucket_bytes = buckets_.bucket_bytes();
  tracker_.emplace(parameters_.size(), buckets_.plan());
}

void Reducer::begin_no_sync() {
  std::lock_guard lock(mutex_);
  ++no_sync_guards_;
}

void Reducer::end_no_sync() {
  std::lock_guard lock(mutex_);
  --no_sync_guards_;
}

void Reducer::set_hook(std::shared_ptr<CommHook> hook) {
  std::lock_guard lock(mutex_);
  logging_.comm_hook = hook->name();
  buckets_.set_hook(std::move(hook));
}

// ---- errors

void Reducer::fail(const std::string& message) {
  tracker_->reset();
  group_->abort(message);
  throw Error({StatusCode::mismatch, message});
}

void Reducer::check_last_pass() {
  std::lock_guard lock(mutex_);
  check_backwards();
  pending_.forget_reached();  // by an inner derivative that threw
  if (tracker_->state() != ReadyTracker::State::idle) {
    fail(unfinished_pass_error(options_, group_->rank(), parameters_, tracker_->missing(), passes_since_forward_ > 0));
  }
  throw_if_error(group_->health());
}

std::string Reducer::unfinished_pass() {
  std::lock_guard lock(mutex_);
  if (in_backward_ || half_done_ || tracker_->state() == ReadyTracker::State::idle) return "";
  return unfinished_pass_error(options_, group_->rank(), parameters_, tracker_->missing(), passes_since_forward_ > 0);
}

void Reducer::check_backwards() {
  if (!half_done_) return;
  fail(half_done_error(group_->rank()));
}

// The program may catch the exception and continue.
void Reducer::abandon_backward() noexcept {
  std::lock_guard lock(mutex_);
  if (!in_backward_) return;
  half_done_ |= tracker_->state() != ReadyTracker::State::idle || (weights_.active() && arrived_) ||
                (!static_.known() && static_.any_arrived());
  // The other ranks finish this pass, or wait for this rank in it: its next one is not theirs.
  if (reached_outputs_ && pending_.mode() == PendingForwards::Mode::synchronise) ++failed_;
  leave_backward();
}

int Reducer::pass_label() const { return label_of(label_, logging_.steps + failed_); }

void Reducer::check_gradient(std::size_t index, const at::Tensor& incoming) const {
  const auto& [name, parameter] = parameters_[index];
  const std::string error = gradient_error(options_, name, parameter.grad(), incoming.defined());
  if (!error.empty()) throw Error({StatusCode::invalid_argument, error});
}

// ---- forwards and backwards

void Reducer::expect_backward(const std::vector<at::Tensor>& outputs, ForwardRecord record) {
  const auto refuse = [](const std::string& why) { throw Error({StatusCode::invalid_argument, why}); };
  std::lock_guard lock(mutex_);
  const auto needs_gradient = [](const at::Tensor& output) { return output.requires_grad(); };
  if (record.synchronise && std::none_of(outputs.begin(), outputs.end(), needs_gradient)) {
    refuse(no_output_error(group_->rank()));
  }
  clock_->forward_ended();
  passes_since_forward_ = 0;
  if (options_.find_unused_parameters && !options_.static_graph) record.unused = find_unused(outputs, hooks_.nodes());
  record.hooked = std::any_of(outputs.begin(), outputs.end(),
                              [](const at::Tensor& output) { return output.requires_grad() && !output.is_leaf(); });
  const auto shared = std::make_shared<const ForwardRecord>(std::move(record));
  for (const at::Tensor& output : outputs) {
    if (!output.requires_grad()) continue;
    if (output.is_leaf()) {  // a hook would stay on it after this forward
      if (shared->weight) {
        refuse(
            "DdpOptions::sample_weighted: forward() returned a parameter, or a tensor that was not computed in it; "
            "return a result that depends on the samples");
      }
      continue;
    }
    compat::when_backward_reaches(output, [this, shared, alive = std::weak_ptr<int>(alive_)] {
      if (!alive.expired()) on_output(shared);
    });
  }
  pending_.add(shared);
}

bool Reducer::awaits_backward() {
  std::lock_guard lock(mutex_);
  return pending_.any();
}

bool Reducer::awaits_synchronisation() {
  std::lock_guard lock(mutex_);
  return pending_.synchronising();
}

void Reducer::begin_backward() {
  if (in_backward_) return;
  check_backwards();
  const std::weak_ptr<int> alive = alive_;
  BackwardEnds::add(
      number_,
      [this, alive] {
        if (!alive.expired()) end_of_backward();
      },
      [this, alive] {
        if (!alive.expired()) abandon_backward();
      });
  in_backward_ = true;
  fills_all_ = compat::backward_fills_all_gradients();
  buckets_.open_memory();
}

void Reducer::leave_backward() {
  weights_.end();
  pending_.end_backward();
  buckets_.close_memory();
  in_backward_ = fills_all_ = reached_outputs_ = arrived_ = weighted_ = false;
}

void Reducer::on_output(const PendingForwards::Record& record) {
  std::lock_guard lock(mutex_);
  if (!compat::backward_fills_all_gradients()) return look_at_output(record);
  if (!in_backward_) pending_.forget_reached();
  pending_.reach(record);
  begin_backward();
  reached_outputs_ = true;
  if (!record->weight) return;
  const double weight = (*record->weight)();
  if (!weighted_) {
    if (arrived_) {
      throw Error({StatusCode::invalid_argument, early_gradient_error(group_->rank())});
    }
    weighted_ = true;
    weights_.begin(weight, averaged_ ? record->carry : 1);
    set_sample_weight(record->weight);  // for segments that run again in backward
  } else if (weight != weights_.weight()) {
    throw Error({StatusCode::invalid_argument, unequal_weights_error(group_->rank(), weights_.weight(), weight)});
  }
}

// autograd::grad() fills no .grad and has no part in a pass. backward(inputs) does: its gradients arrive next.
void Reducer::look_at_output(const PendingForwards::Record& record) {
  if (in_backward_) return;
  if (c10::GradMode::is_enabled()) pending_.derive(record);  // create_graph
  pending_.reach(record);
  compat::at_end_of_backward([this, alive = std::weak_ptr<int>(alive_)] {
    if (alive.expired()) return;
    std::lock_guard lock(mutex_);
    if (!in_backward_) pending_.forget_reached();
  });
}

// Whether the gradient that arrived belongs to a pass.
bool Reducer::is_to_be_averaged(std::size_t index) const {
  switch (pending_.mode()) {
    case PendingForwards::Mode::synchronise: return true;
    case PendingForwards::Mode::accumulate: return false;
    case PendingForwards::Mode::unknown: break;
  }
  if (tracker_->state() == ReadyTracker::State::collecting) return true;  // the rest of a loss in two parts
  if (!synchronise()) return false;
  throw Error({StatusCode::invalid_argument, foreign_gradient_error(parameters_[index].first)});
}

void Reducer::on_gradient(std::size_t index, const at::Tensor& incoming) {
  std::lock_guard lock(mutex_);
  const OperationLabel label(pass_label());
  const bool average = is_to_be_averaged(index);
  begin_backward();
  arrived_ = true;
  // The graph reached the parameter without a gradient: with a search it counts as unused at the end of backward.
  if (!incoming.defined() && options_.find_unused_parameters && !options_.static_graph) return;
  used_.mark(index);
  if (average || weights_.active()) check_gradient(index, incoming);
  if (weights_.active()) weights_.arrived(index, is_exclusive(parameters_[index].second.grad(), incoming));
  if (!average) {
    if (options_.static_graph && static_.known() && !used_.anywhere(index)) {
      throw Error(
          {StatusCode::invalid_argument, surplus_gradient_error(options_, parameters_[index].first, /*skipped=*/true)});
    }
    averaged_ = false;
    return keep_apart(index, incoming);
  }
  if (options_.static_graph && !static_.known()) {
    static_.arrived(index);
    return keep_apart(index, incoming);
  }
  if (tracker_->state() == ReadyTracker::State::idle) begin_pass();
  switch (tracker_->arrived(index)) {
    case ReadyTracker::Arrival::counted: return keep_apart(index, incoming);
    case ReadyTracker::Arrival::ready: break;
    case ReadyTracker::Arrival::surplus: {
      const bool skipped = std::find(skipped_.begin(), skipped_.end(), index) != skipped_.end();
      throw Error({StatusCode::invalid_argument, surplus_gradient_error(options_, parameters_[index].first, skipped)});
    }
  }
  weights_.settle(index);
  put(index, Contribution::gradient, incoming);
  launch_ready();
}

// A gradient that is not reduced yet must not share memory: autograd would add the next one to memory that another
// parameter's gradient may share, and so to both.
void Reducer::keep_apart(std::size_t index, const at::Tensor& incoming) {
  at::Tensor& gradient = const_cast<at::Tensor&>(parameters_[index].second).mutable_grad();
  at::NoGradGuard no_grad;
  if (!gradient.defined() || gradient.layout() != at::kStrided || gradient.requires_grad()) return;
  if (took_over_shared_memory(gradient, incoming)) gradient = gradient.clone();
}

void Reducer::end_of_backward() {
  std::lock_guard lock(mutex_);
  const OperationLabel label(pass_label());
  struct Leave {
    Reducer& reducer;
    ~Leave() { reducer.leave_backward(); }
  } leave{*this};
  const bool unweighed = arrived_ && !weighted_ && pending_.weighted();
  weights_.end();
  if (unweighed) {
    fail(unweighted_error(group_->rank()));
  }
  try {
    finish_backward();
  } catch (const std::exception& error) {
    // The other ranks may have their averages by now, and would continue without this one.
    end_pass();
    group_->abort(fmt::format(
        "rank {}: backward() ended with an exception before this rank had the averages, so its replica would differ "
        "from the others: {}",
        group_->rank(), error.what()));
    rethrow_mismatch(error);
    throw;
  }
}

// Models of one group share the order of its operations, in which ranks reach them.
void Reducer::rethrow_mismatch(const std::exception& error) const {
  const auto* ours = dynamic_cast<const Error*>(&error);
  if (ours == nullptr || ours->code() != StatusCode::mismatch) return;
  const std::string reason = mismatch_context(group_->rank(), failed_ > 0, group_->label_count() > 1);
  if (!reason.empty()) throw Error(ours->status().with_context(reason));
}

// Finishes the pass if this backward has ended it.
void Reducer::finish_backward() {
  const bool average = pending_.mode() == PendingForwards::Mode::synchronise;
  const bool nothing_arrived = reached_outputs_ && average && !arrived_;
  if (options_.static_graph && !static_.known()) {
    // Everything is reduced now that the used parameters are known.
    if (!static_.any_arrived() && !nothing_arrived) return;
    reduce_all_now(true, Contribution::gradient);
    static_.finish(/*shadowed=*/false);
    return finish_pass(true);
  }
  switch (tracker_->state()) {
    case ReadyTracker::State::complete: return finish_pass(true);
    case ReadyTracker::State::collecting:
      // What has not arrived by now was not used, whatever the search had found. Without a search, the rest of the loss
      // may have a backward of its own.
      if (!options_.find_unused_parameters || !fills_all_) return;
      for (std::size_t index : tracker_->missing()) {
        tracker_->skip(index);
        put(index, Contribution::gradient);
      }
      launch_ready();
      return finish_pass(true);
    case ReadyTracker::State::idle: break;
  }
  if (!nothing_arrived) return;
  if (options_.find_unused_parameters || static_.known()) {
    reduce_all_now(options_.find_unused_parameters && !options_.static_graph, Contribution::gradient);
    return finish_pass(true);
  }
  fail(nothing_to_average_error(group_->rank()));
}

// ---- a pass

void Reducer::begin_pass(Contribution unused) {
  clock_->pass_began();
  buckets_.begin(scale_of_pass_ ? scale_of_pass_() : 1.0);
  skipped_ = options_.static_graph ? static_.unused() : pending_.unused();
  for (std::size_t index : skipped_) {
    tracker_->skip(index);
    weights_.settle(index);  // no gradient arrives, so what was set aside is everything
    put(index, unused);
  }
}

void Reducer::put(std::size_t index, Contribution contribution, const at::Tensor& incoming) {
  if (!buckets_.reduces()) return keep_apart(index, incoming);
  if (contribution == Contribution::zero) return buckets_.put(index, {}, {});
  // By reference: another handle would count as one of the program's.
  const at::Tensor& gradient = parameters_[index].second.grad();
  // A parameter that this backward did not use contributes what it had accumulated, as on the other ranks. It is
  // copied, because it must not change if no rank used the parameter.
  buckets_.put(index, gradient,
               {.borrow = gradient.defined() && used_.here(index) && is_exclusive(gradient, incoming),
                .keep = took_over_shared_memory(gradient, incoming)});
}

void Reducer::launch_ready() {
  for (std::size_t bucket; (bucket = tracker_->next_launch()) != ReadyTracker::kNone;) buckets_.start(bucket);
  if (tracker_->state() != ReadyTracker::State::complete) return;
  if (options_.find_unused_parameters && !options_.static_graph) used_.begin_exchange();
  clock_->gradients_complete();
}

// A pass in which all gradients, or zeros, are available at its beginning.
void Reducer::reduce_all_now(bool exchange_used, Contribution contribution) {
  begin_pass(contribution);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (tracker_->is_ready(i)) continue;
    tracker_->skip(i);
    put(i, contribution);
  }
  for (std::size_t bucket; (bucket = tracker_->next_launch()) != ReadyTracker::kNone;) buckets_.start(bucket);
  if (exchange_used) used_.begin_exchange();
  clock_->gradients_complete();
}

void Reducer::shadow_pass() {
  std::lock_guard lock(mutex_);
  const OperationLabel label(pass_label());
  used_.reset();
  const bool learns = options_.static_graph && !static_.known();
  reduce_all_now(learns || (options_.find_unused_parameters && !options_.static_graph), Contribution::zero);
  if (learns) static_.finish(/*shadowed=*/true);
  finish_pass(false);
}

void Reducer::finish_pass(bool keep_gradients) {
  try {
    buckets_.finish();
    used_.end_exchange();
    clock_->wait_ended();
    if (keep_gradients && buckets_.reduces()) buckets_.hand_out(used_);
  } catch (...) {
    end_pass();
    throw;
  }
  clock_->step_ended();
  log_pass();
  passes_since_forward_ += 1;
  if (!rebuilt_) first_order_ = options_.static_graph ? static_.order() : tracker_->ready_order();
  end_pass();
  if (!rebuilt_ && (!options_.find_unused_parameters || options_.static_graph)) rebuild();
  stragglers_.after_step();
}

StragglerReport Reducer::stragglers() {
  std::lock_guard lock(mutex_);
  const OperationLabel label(label_of(label_, 0));
  return stragglers_.compare();
}

std::string Reducer::describe_bucket(std::size_t bucket) const {
  if (bucket >= buckets_.plan().size() || buckets_.plan()[bucket].empty()) return "";
  const auto& parameters = buckets_.plan()[bucket];
  const std::string& first = parameters_[parameters.front()].first;
  return parameters.size() == 1 ? first : fmt::format("{} and {} more", first, parameters.size() - 1);
}

void Reducer::log_pass() {
  logging_.steps += 1;
  logging_.backward_compute_seconds = clock_->compute_seconds();
  logging_.backward_communication_seconds = clock_->communication_seconds();
  logging_.overlap_seconds = clock_->overlap_seconds();
  logging_.exposed_communication_seconds = clock_->exposed_seconds();
  logging_.unused_parameters = used_.unused_here();
  logging_.copied_bytes = buckets_.copied_bytes();
  logging_.zero_copy_fraction = logging_.parameter_bytes > 0 ? static_cast<double>(buckets_.in_place_bytes()) /
                                                                   static_cast<double>(logging_.parameter_bytes)
                                                             : 0;
}

void Reducer::end_pass() {
  tracker_->reset();
  buckets_.release();
  skipped_.clear();
  used_.reset();
  pending_.end_pass();
  averaged_ = true;
  clock_->pass_ended();
}

// The order in which gradients arrived on one rank becomes the order of buckets on all.
void Reducer::rebuild() {
  rebuilt_ = true;
  logging_.buckets_rebuilt = true;
  ObservedOrder observed{.order = first_order_};
  if (options_.static_graph) observed.counts = static_.counts();
  const ObservedOrder agreed = agree_on_order(*group_, authority_, parameters_.size(), observed);
  assign_buckets(agreed.order);
  if (!options_.static_graph) return;
  static_.adopt(agreed.counts);
  for (std::size_t i = 0; i < parameters_.size(); ++i) tracker_->expect(i, static_cast<int>(static_.counts()[i]));
}

}  // namespace lockstep::detail
