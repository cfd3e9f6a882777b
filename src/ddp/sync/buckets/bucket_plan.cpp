#include "ddp/sync/buckets/bucket_plan.h"

#include <algorithm>
#include <map>
#include <utility>

namespace lockstep::detail {

namespace {

struct Open {
  std::vector<std::size_t> parameters;
  std::size_t bytes = 0;
  std::size_t last_position = 0;  // of the gradient that completes it
};

}  // namespace

bool stands_alone(const GradientShape& gradient, const BucketLimits& limits) {
  const bool on_host = gradient.device == GradientShape::kHost;
  return gradient.bytes >= (on_host ? limits.alone_bytes : limits.device_alone_bytes);
}

BucketPlan plan_buckets(const std::vector<GradientShape>& gradients, const BucketLimits& limits) {
  std::map<std::pair<int, int>, Open> open;  // one bucket per type and device is being filled
  std::vector<Open> closed;
  bool first_closed = false;
  for (std::size_t position = 0; position < gradients.size(); ++position) {
    const GradientShape& gradient = gradients[position];
    if (stands_alone(gradient, limits)) {
      closed.push_back({{gradient.parameter}, gradient.bytes, position});
      first_closed = true;
      continue;
    }
    const std::pair kind(gradient.type, gradient.device);
    Open& bucket = open[kind];
    bucket.parameters.push_back(gradient.parameter);
    bucket.bytes += gradient.bytes;
    bucket.last_position = position;
    if (bucket.bytes >= (first_closed ? limits.bytes : limits.first_bytes)) {
      closed.push_back(std::move(bucket));
      open.erase(kind);
      first_closed = true;
    }
  }
  for (auto& [kind, bucket] : open) closed.push_back(std::move(bucket));
  std::stable_sort(closed.begin(), closed.end(),
                   [](const Open& a, const Open& b) { return a.last_position < b.last_position; });
  BucketPlan plan;
  plan.reserve(closed.size());
  for (Open& bucket : closed) plan.push_back(std::move(bucket.parameters));
  return plan;
}

}  // namespace lockstep::detail
