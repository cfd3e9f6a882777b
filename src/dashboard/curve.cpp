#include "dashboard/curve.h"

#include <algorithm>

namespace lockstep::dashboard {

void Curve::add(const Point& point) {
  latest_ = point;
  if (++skipped_ < stride_) return;
  skipped_ = 0;
  points_.push_back(point);
  if (points_.size() < kMostPoints) return;
  std::size_t kept = 0;
  for (std::size_t i = 1; i < points_.size(); i += 2) points_[kept++] = points_[i];
  points_.resize(kept);
  stride_ *= 2;
  rewritten_ = point.tick;
}

void Curve::rewind(double x, std::uint64_t tick) {
  if (!latest_ || latest_->x < x) return;
  if (!points_.empty() && points_.back().x >= x) rewritten_ = tick;
  while (!points_.empty() && points_.back().x >= x) points_.pop_back();
  latest_.reset();
  if (!points_.empty()) latest_ = points_.back();
}

std::size_t Curve::first_after(std::uint64_t tick) const {
  if (rewritten_since(tick)) return 0;
  const auto first =
      std::partition_point(points_.begin(), points_.end(), [tick](const Point& point) { return point.tick <= tick; });
  return static_cast<std::size_t>(first - points_.begin());
}

}  // namespace lockstep::dashboard
