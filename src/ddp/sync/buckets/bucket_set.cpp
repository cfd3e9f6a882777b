#include "ddp/sync/buckets/bucket_set.h"

#include <ATen/record_function.h>
#include <fmt/format.h>

#include "ddp/sync/buckets/exclusive_memory.h"

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

}  // namespace

BucketSet::BucketSet(std::shared_ptr<ProcessGroup> group, std::vector<at::Tensor> parameters, const DdpOptions& options,
                     std::shared_ptr<PassClock> clock)
    : group_(std::move(group)),
      parameters_(std::move(parameters)),
      limits_(limits_of(options)),
      views_(options.gradient_as_bucket_view),
      clock_(std::move(clock)) {
  for (const at::Tensor& parameter : parameters_) strides_.push_back(gradient_strides(parameter));
  // Devices have allocators of their own.
  std::vector<std::size_t> large;
  for (const at::Tensor& parameter : parameters_) {
    if (parameter.is_cpu() && stands_alone(shape_of(0, parameter), limits_)) large.push_back(parameter.nbytes());
  }
  if (!large.empty() && group_->size() > 1) memory_.emplace(group_, large);
}

void BucketSet::assign(const std::vector<std::size_t>& order) {
  std::vector<GradientShape> shapes;
  for (std::size_t parameter : order) shapes.push_back(shape_of(parameter, parameters_[parameter]));
  plan_ = plan_buckets(shapes, limits_);
  places_.assign(parameters_.size(), {});
  buckets_.clear();
  for (std::size_t b = 0; b < plan_.size(); ++b) {
    std::vector<at::Tensor> tensors;
    std::vector<Bucket::Strides> strides;
    for (std::size_t slot = 0; slot < plan_[b].size(); ++slot) {
      places_[plan_[b][slot]] = {b, slot};
      tensors.push_back(parameters_[plan_[b][slot]]);
      strides.push_back(strides_[plan_[b][slot]]);
    }
    const bool alone = tensors.size() == 1 && stands_alone(shape_of(plan_[b][0], tensors[0]), limits_);
    buckets_.emplace_back(*group_, std::move(tensors), std::move(strides), alone);
  }
}

std::vector<std::int64_t> BucketSet::bucket_bytes() const {
  std::vector<std::int64_t> bytes;
  for (const Bucket& bucket : buckets_) bytes.push_back(bucket.bytes());
  return bytes;
}

void BucketSet::open_memory() {
  if (memory_) memory_->open();
}

void BucketSet::close_memory() {
  if (memory_) memory_->close();
}

void BucketSet::begin(double scale) {
  scale_ = scale;
  launches_.assign(buckets_.size(), {});
  keep_.assign(parameters_.size(), 0);
  in_place_bytes_ = copied_bytes_ = 0;
}

void BucketSet::put(std::size_t parameter, const at::Tensor& gradient, const Use& use) {
  at::NoGradGuard no_grad;
  keep_[parameter] = use.keep ? 1 : 0;
  const Place place = places_[parameter];
  Bucket& bucket = buckets_[place.bucket];
  bucket.put(place.slot, gradient, scale_, use.borrow ? Bucket::Memory::the_gradients : Bucket::Memory::own);
  if (!bucket.alone() || !gradient.defined()) return;
  if (!bucket.in_place(0, gradient)) {
    copied_bytes_ += bucket.bytes();
  } else if (is_reduced_in_place(gradient)) {
    in_place_bytes_ += bucket.bytes();
  }
}

// Without a copy anywhere: on the CPU the engine stages what is not in registered memory.
bool BucketSet::is_reduced_in_place(const at::Tensor& gradient) const {
  return !gradient.is_cpu() || (memory_ && memory_->owns(gradient.data_ptr()));
}

void BucketSet::start(std::size_t bucket) {
  if (!reduces()) return;
  RECORD_FUNCTION(fmt::format("lockstep::launch_bucket {}", bucket), std::vector<c10::IValue>());
  Launch& launch = launches_[bucket];
  clock_->launched(bucket, buckets_[bucket].bytes());
  buckets_[bucket].gather_streams();
  if (hook_) {
    at::NoGradGuard no_grad;
    launch.future = hook_->run(buckets_[bucket].for_hook(bucket, bucket + 1 == buckets_.size()), *group_);
  } else {
    launch.future = group_->all_reduce(buckets_[bucket].flat(), {.op = ReduceOp::avg});
  }
  watch(bucket, launch.future);
}

void BucketSet::watch(std::size_t bucket, const HookFuture& future) {
  for (const Work& work : future.works()) {
    work.then([clock = clock_, bucket](const Status&) { clock->reduced(bucket); });
  }
}

// Advances all buckets' futures in rounds, in the order of buckets: the collectives that continuations
// issue have the same order on all ranks.
void BucketSet::finish() {
  at::NoGradGuard no_grad;
  for (bool open = true; open;) {
    open = false;
    for (std::size_t bucket = 0; bucket < launches_.size(); ++bucket) {
      Launch& launch = launches_[bucket];
      if (launch.done) continue;
      RECORD_FUNCTION(fmt::format("lockstep::wait_for_bucket {}", bucket), std::vector<c10::IValue>());
      for (const Work& work : launch.future.works()) work.wait();
      if (!launch.future.next()) {
        launch.done = true;
        continue;
      }
      launch.future = launch.future.next()();
      watch(bucket, launch.future);
      open = true;
    }
  }
}

void BucketSet::hand_out(const UsedParameters& used) {
  at::NoGradGuard no_grad;
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    if (!used.anywhere(index)) continue;
    const Bucket& bucket = buckets_[places_[index].bucket];
    const std::size_t slot = places_[index].slot;
    at::Tensor& gradient = const_cast<at::Tensor&>(parameters_[index]).mutable_grad();
    if (bucket.in_place(slot, gradient)) continue;
    if (views_) {
      gradient = bucket.reduced(slot);
    } else if (gradient.defined() && gradient.has_storage() && keep_[index] == 0) {
      gradient.copy_(bucket.reduced(slot));
    } else {
      gradient = bucket.reduced(slot).clone();
    }
  }
}

void BucketSet::release() {
  for (Bucket& bucket : buckets_) bucket.release();
  launches_.clear();
}

}  // namespace lockstep::detail
