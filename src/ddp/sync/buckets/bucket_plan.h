// Which gradients are reduced together, and in which order: sizes in, assignment out.
//
// Gradients are taken in the order in which they are expected to become ready. Each large gradient
// has a bucket of its own, because it can be reduced in place; the others are packed together with
// their neighbours of the same type and device until a bucket is full. The first bucket is small, so
// that communication starts early.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::detail {

struct GradientShape {
  std::size_t parameter;  // index in the caller's list
  std::size_t bytes;
  int type;  // gradients of different types never share a bucket
  // Nor do those of different devices: each bucket is reduced on its device, by the engine for it. Any numbers that
  // distinguish devices.
  int device = kHost;
  static constexpr int kHost = -1;  // the CPU's memory
};

struct BucketLimits {
  std::size_t first_bytes = std::size_t{1} << 20;
  std::size_t bytes = std::size_t{25} << 20;
  // From this size on a gradient has a bucket of its own: in host memory, where small operations are cheap, and on
  // devices, where every operation has to be launched.
  std::size_t alone_bytes = std::size_t{1} << 20;
  std::size_t device_alone_bytes = std::size_t{25} << 20;
};

bool stands_alone(const GradientShape& gradient, const BucketLimits& limits);

// Parameters of each bucket, in the order of `gradients`; buckets in the order in which they become
// complete. Every gradient is in exactly one bucket. A bucket is closed as soon as it has reached its
// limit, so one gradient may exceed it.
using BucketPlan = std::vector<std::vector<std::size_t>>;
BucketPlan plan_buckets(const std::vector<GradientShape>& gradients, const BucketLimits& limits);

}  // namespace lockstep::detail
