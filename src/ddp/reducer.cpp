#include "ddp/reducer.h"

#include <fmt/format.h>

#include <algorithm>

#include "ddp/unused_parameters.h"
#include "lockstep/ddp/torch_compat.h"

namespace lockstep::detail {

namespace {

std::size_t megabytes(double value, const char* option) {
  if (!(value > 0)) {
    throw Error(
        {StatusCode::invalid_argument, fmt::format("DdpOptions::{} is {}, but must be more than 0", option, value)});
  }
  return static_cast<std::size_t>(value * 1024 * 1024);
}

BucketLimits limits_of(const DdpOptions& options) {
  BucketLimits limits;
  limits.first_bytes = megabytes(options.first_bucket_mb, "first_bucket_mb");
  limits.bytes = megabytes(options.bucket_cap_mb, "bucket_cap_mb");
  limits.device_alone_bytes = limits.bytes;
  return limits;
}

GradientShape shape_of(std::size_t index, const at::Tensor& parameter) {
  GradientShape shape{index, parameter.nbytes(), static_cast<int>(parameter.scalar_type())};
  if (const at::Device device = parameter.device(); !device.is_cpu()) {
    shape.device = static_cast<int>(device.type()) << 8 | (device.index() & 0xff);
  }
  return shape;
}

std::vector<std::size_t> reverse_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = count - 1 - i;
  return order;
}

}  // namespace

Reducer::Reducer(std::shared_ptr<TensorGroup> group, NamedTensors parameters, const DdpOptions& options)
    : group_(std::move(group)), parameters_(std::move(parameters)), options_(options), limits_(limits_of(options)) {
  // Large gradients of the CPU come to life in registered memory; devices have allocators of their own.
  std::vector<std::size_t> large;
  for (const auto& [name, parameter] : parameters_) {
    if (parameter.is_cpu() && stands_alone(shape_of(0, parameter), limits_)) large.push_back(parameter.nbytes());
    logging_.parameter_bytes += static_cast<std::int64_t>(parameter.nbytes());
  }
  logging_.parameter_count = static_cast<std::int64_t>(parameters_.size());
  logging_.world_size = group_->size();
  logging_.rank = group_->rank();
  logging_.backend = group_->backend();
  logging_.find_unused_parameters = options_.find_unused_parameters;
  logging_.static_graph = options_.static_graph;

  make_buckets(reverse_order(parameters_.size()));
  if (!large.empty() && group_->size() > 1) memory_.emplace(group_, large);
  used_here_.assign(parameters_.size(), 0);
  used_anywhere_.assign(parameters_.size(), 1);
  static_counts_.assign(parameters_.size(), 0);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    accumulators_.push_back(compat::gradient_accumulator(parameters_[i].second));
    hooks_.push_back(
        accumulators_[i]->add_post_hook(std::make_unique<compat::PostHook>([this, i] { on_gradient(i); })));
  }
}

Reducer::~Reducer() {
  for (std::size_t i = 0; i < hooks_.size(); ++i) accumulators_[i]->del_post_hook(hooks_[i]);
}

void Reducer::make_buckets(const std::vector<std::size_t>& order) {
  std::vector<GradientShape> shapes;
  for (std::size_t index : order) {
    shapes.push_back(shape_of(index, parameters_[index].second));
  }
  plan_ = plan_buckets(shapes, limits_);
  slot_of_.assign(parameters_.size(), 0);
  buckets_.clear();
  logging_.bucket_bytes.clear();
  for (const std::vector<std::size_t>& members : plan_) {
    std::vector<at::Tensor> tensors;
    for (std::size_t slot = 0; slot < members.size(); ++slot) {
      slot_of_[members[slot]] = slot;
      tensors.push_back(parameters_[members[slot]].second);
    }
    const bool alone = members.size() == 1 && stands_alone(shape_of(members[0], tensors[0]), limits_);
    buckets_.emplace_back(*group_, std::move(tensors), alone);
    logging_.bucket_bytes.push_back(buckets_.back().bytes());
  }
  tracker_.emplace(parameters_.size(), plan_);
}

void Reducer::set_synchronise(bool on) {
  std::lock_guard lock(mutex_);
  synchronise_ = on;
}

void Reducer::set_hook(std::shared_ptr<CommHook> hook) {
  std::lock_guard lock(mutex_);
  logging_.comm_hook = hook->name();
  hook_ = std::move(hook);
}

std::string Reducer::names(const std::vector<std::size_t>& indices) const {
  constexpr std::size_t kShown = 10;
  std::string text;
  for (std::size_t i = 0; i < indices.size() && i < kShown; ++i) {
    text += fmt::format("{}\"{}\"", i == 0 ? "" : ", ", parameters_[indices[i]].first);
  }
  if (indices.size() > kShown) text += fmt::format(" and {} more", indices.size() - kShown);
  return text;
}

// What went wrong in a pass that did not finish.
std::string Reducer::unfinished_pass() const {
  if (passes_since_forward_ > 0) {
    return fmt::format(
        "rank {}: parameters got gradients again after all had been averaged, in the same backward or in one without a "
        "forward of its own. If they are used in several re-entrant (checkpointed) segments, set "
        "DdpOptions::static_graph",
        group_->rank());
  }
  const std::vector<std::size_t> missing = tracker_->missing();
  return fmt::format(
      "rank {}: {} of {} parameters got no gradient in the last backward: {}. If the model does not always use them, "
      "set DdpOptions::find_unused_parameters (or static_graph, if it is always the same ones); every output of "
      "forward() must take part in the loss; if backward() threw an exception, the training cannot go on",
      group_->rank(), missing.size(), parameters_.size(), names(missing));
}

void Reducer::check_last_pass() {
  std::lock_guard lock(mutex_);
  if (tracker_->state() == ReadyTracker::State::collecting) {
    const std::string sentence = unfinished_pass();
    tracker_->reset();
    group_->abort(sentence);
    throw Error({StatusCode::mismatch, sentence});
  }
  throw_if_error(group_->health());
}

void Reducer::expect_backward(const std::vector<at::Tensor>& outputs) {
  std::lock_guard lock(mutex_);
  clock_->forward_ended();
  passes_since_forward_ = 0;
  if (memory_) memory_->open();
  unused_.clear();
  if (options_.static_graph) {
    if (static_known_) return;
    for (const at::Tensor& output : outputs) {
      if (!output.requires_grad()) continue;
      static_watch_ = true;
      output.register_hook([this, alive = std::weak_ptr<int>(alive_)](const at::Tensor&) {
        if (alive.expired()) return;
        std::lock_guard hook_lock(mutex_);
        if (!static_watch_ || !synchronise_) return;
        static_watch_ = false;
        compat::at_end_of_backward([this] { end_first_static_pass(); });
      });
    }
  } else if (options_.find_unused_parameters) {
    std::vector<torch::autograd::Node*> nodes;
    for (const auto& node : accumulators_) nodes.push_back(node.get());
    unused_ = find_unused(outputs, nodes);
  }
}

void Reducer::check_gradient(std::size_t index, const at::Tensor& gradient) const {
  const auto refuse = [&](const char* why) {
    throw Error(
        {StatusCode::invalid_argument,
         fmt::format("DistributedDataParallel: the gradient of parameter \"{}\" {}", parameters_[index].first, why)});
  };
  if (!gradient.defined()) refuse("is undefined after backward: a hook of the program removed it");
  if (gradient.layout() != at::kStrided) refuse("is sparse; make the layer produce dense gradients (sparse(false))");
  if (gradient.requires_grad()) {
    refuse(
        "has a graph of its own: backward(create_graph = true) does not work through DDP, because averaging is not "
        "differentiated. Use torch::autograd::grad for the inner derivative, or no_sync()");
  }
}

void Reducer::on_gradient(std::size_t index) {
  std::lock_guard lock(mutex_);
  used_here_[index] = 1;
  if (!synchronise_) return;
  check_gradient(index, parameters_[index].second.grad());
  if (options_.static_graph && !static_known_) {
    if (static_counts_[index]++ == 0) first_order_.push_back(index);
    return;
  }
  if (tracker_->state() == ReadyTracker::State::idle) begin_pass();
  switch (tracker_->arrived(index)) {
    case ReadyTracker::Arrival::counted: return;
    case ReadyTracker::Arrival::ready: break;
    case ReadyTracker::Arrival::surplus:
      throw Error(
          {StatusCode::invalid_argument,
           fmt::format("DistributedDataParallel: parameter \"{}\" got {} gradient in one backward. {}",
                       parameters_[index].first,
                       std::find(unused_.begin(), unused_.end(), index) == unused_.end() ? "a second" : "an unexpected",
                       "If it is used in several re-entrant (checkpointed) segments, set DdpOptions::static_graph; "
                       "if the loss depends on more than forward() returned, return that too")});
  }
  put(index);
  launch_ready();
}

void Reducer::begin_pass() {
  clock_->pass_began();
  scale_ = scale_of_pass_ ? scale_of_pass_() : 1.0;
  launches_.assign(buckets_.size(), {});
  in_place_bytes_ = 0;
  for (std::size_t index : static_known_ ? static_unused_ : unused_) {
    tracker_->skip(index);
    put(index);
  }
}

void Reducer::put(std::size_t index, Contribution contribution) {
  if (group_->size() == 1 && !hook_ && scale_ == 1) return;
  at::NoGradGuard no_grad;
  Bucket& bucket = buckets_[tracker_->bucket_of(index)];
  // A parameter that this backward did not use brings what it had accumulated: the other ranks bring that too. It
  // goes in as a copy, because it stays as it is if nobody used the parameter.
  const at::Tensor gradient = contribution == Contribution::gradient ? parameters_[index].second.grad() : at::Tensor();
  bucket.put(slot_of_[index], gradient, scale_,
             used_here_[index] ? Bucket::Memory::the_gradients : Bucket::Memory::own);
  if (bucket.alone() && bucket.in_place(0, gradient) && is_reduced_in_place(gradient)) {
    in_place_bytes_ += bucket.bytes();
  }
}

// Without a copy anywhere: on the CPU the engine stages what is not in registered memory.
bool Reducer::is_reduced_in_place(const at::Tensor& gradient) const {
  return !gradient.is_cpu() || (memory_ && memory_->owns(gradient.data_ptr()));
}

void Reducer::launch_ready() {
  for (std::size_t bucket; (bucket = tracker_->next_launch()) != ReadyTracker::kNone;) start(bucket);
  if (tracker_->state() != ReadyTracker::State::complete) return;
  if (options_.find_unused_parameters && !options_.static_graph) learn_used_parameters();
  clock_->gradients_complete();
  compat::at_end_of_backward([this] {
    std::lock_guard lock(mutex_);
    finish_pass(true);
  });
}

void Reducer::start(std::size_t bucket) {
  Launch& launch = launches_[bucket];
  buckets_[bucket].gather_streams();
  if (hook_) {
    at::NoGradGuard no_grad;
    launch.future = hook_->run(buckets_[bucket].for_hook(bucket, bucket + 1 == buckets_.size()), *group_);
  } else if (group_->size() > 1 || scale_ != 1) {
    launch.future = group_->all_reduce(buckets_[bucket].flat(), {.op = ReduceOp::avg});
  } else {
    return;
  }
  clock_->launched();
  watch(launch.future);
}

void Reducer::watch(const HookFuture& future) {
  for (const Work& work : future.works()) {
    work.then([clock = clock_](const Status&) { clock->reduced(); });
  }
}

void Reducer::learn_used_parameters() {
  used_map_ = at::empty({static_cast<std::int64_t>(parameters_.size())}, at::kByte);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    used_map_.data_ptr<std::uint8_t>()[i] = static_cast<std::uint8_t>(used_here_[i]);
  }
  used_map_work_ = group_->all_reduce(used_map_, {.op = ReduceOp::max});
}

// Advances all buckets' futures in rounds, in the order of buckets: the collectives that continuations
// issue come in the same order on all ranks.
void Reducer::finish_launches() {
  at::NoGradGuard no_grad;
  for (bool open = true; open;) {
    open = false;
    for (Launch& launch : launches_) {
      if (launch.done) continue;
      for (const Work& work : launch.future.works()) work.wait();
      if (!launch.future.next()) {
        launch.done = true;
        continue;
      }
      launch.future = launch.future.next()();
      watch(launch.future);
      open = true;
    }
  }
}

void Reducer::finish_pass(bool keep_gradients) {
  try {
    finish_launches();
    if (used_map_.defined()) {
      used_map_work_.wait();
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        used_anywhere_[i] = static_cast<char>(used_map_.data_ptr<std::uint8_t>()[i]);
      }
    }
    clock_->wait_ended();
    if (keep_gradients) hand_out();
  } catch (...) {
    end_pass();
    throw;
  }
  logging_.steps += 1;
  passes_since_forward_ += 1;
  logging_.backward_compute_seconds = clock_->compute_seconds();
  logging_.backward_communication_seconds = clock_->communication_seconds();
  logging_.overlap_seconds = clock_->overlap_seconds();
  logging_.exposed_communication_seconds = clock_->exposed_seconds();
  logging_.unused_parameters = 0;
  for (char used : used_here_) logging_.unused_parameters += used ? 0 : 1;
  logging_.zero_copy_fraction = logging_.parameter_bytes > 0 ? static_cast<double>(in_place_bytes_) /
                                                                   static_cast<double>(logging_.parameter_bytes)
                                                             : 0;
  std::vector<std::size_t> order = options_.static_graph ? first_order_ : tracker_->ready_order();
  end_pass();
  if (!rebuilt_ && (!options_.find_unused_parameters || options_.static_graph)) {
    first_order_ = std::move(order);
    rebuild();
  }
}

void Reducer::end_pass() {
  if (memory_) memory_->close();
  tracker_->reset();
  for (Bucket& bucket : buckets_) bucket.release();
  launches_.clear();
  unused_.clear();
  used_map_ = at::Tensor();
  used_here_.assign(parameters_.size(), 0);
  clock_->pass_ended();
}

// Gives every parameter its averaged gradient; one that no rank used keeps what it had.
void Reducer::hand_out() {
  if (group_->size() == 1 && !hook_ && scale_ == 1) return;
  at::NoGradGuard no_grad;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    for (std::size_t slot = 0; slot < plan_[b].size(); ++slot) {
      const std::size_t index = plan_[b][slot];
      if (!used_anywhere_[index]) continue;
      at::Tensor& gradient = const_cast<at::Tensor&>(parameters_[index].second).mutable_grad();
      if (buckets_[b].in_place(slot, gradient)) continue;
      const at::Tensor& reduced = buckets_[b].reduced(slot);
      if (buckets_[b].alone() || options_.gradient_as_bucket_view) {
        gradient = reduced;
      } else if (gradient.defined()) {
        gradient.copy_(reduced);
      } else {
        gradient = reduced.clone();
      }
    }
  }
}

// The order in which gradients came on one rank becomes the order of buckets on all.
void Reducer::rebuild() {
  rebuilt_ = true;
  logging_.buckets_rebuilt = true;
  at::Tensor order = at::empty({static_cast<std::int64_t>(parameters_.size())}, at::kLong);
  std::vector<char> placed(parameters_.size(), 0);
  std::int64_t* next = order.data_ptr<std::int64_t>();
  for (std::size_t index : first_order_) {
    if (!placed[index]) *next++ = static_cast<std::int64_t>(index);
    placed[index] = 1;
  }
  for (std::size_t index : reverse_order(parameters_.size())) {
    if (!placed[index]) *next++ = static_cast<std::int64_t>(index);
  }
  group_->broadcast(order, authority_, {}).wait();
  const std::int64_t* agreed = order.data_ptr<std::int64_t>();
  make_buckets({agreed, agreed + order.numel()});
  if (options_.static_graph) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      tracker_->expect(i, static_counts_[i]);
      if (static_counts_[i] == 0) static_unused_.push_back(i);
    }
  }
}

// static_graph: everything is reduced at the end of the first backward, when it is known what was used.
void Reducer::end_first_static_pass() {
  std::lock_guard lock(mutex_);
  reduce_all_now(true, Contribution::gradient);
  finish_pass(true);
}

// A pass whose gradients, or zeros, are all there at its beginning.
void Reducer::reduce_all_now(bool learn_used, Contribution contribution) {
  begin_pass();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    tracker_->skip(i);
    put(i, contribution);
  }
  for (std::size_t bucket; (bucket = tracker_->next_launch()) != ReadyTracker::kNone;) start(bucket);
  if (learn_used) learn_used_parameters();
  clock_->gradients_complete();
  static_known_ = options_.static_graph;
}

void Reducer::shadow_pass() {
  std::lock_guard lock(mutex_);
  used_here_.assign(parameters_.size(), 0);
  reduce_all_now(options_.static_graph ? !static_known_ : options_.find_unused_parameters, Contribution::zero);
  finish_pass(false);
}

}  // namespace lockstep::detail
