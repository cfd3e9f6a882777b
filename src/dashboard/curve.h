// A curve of bounded size: when it is full, every second point is dropped.
//
// A viewer that has the points up to a tick needs only the later ones, unless the curve was thinned out since.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::dashboard {

class Curve {
 public:
  static constexpr std::size_t kMostPoints = 1200;

  struct Point {
    std::uint64_t tick = 0;  // of the sample that added it
    double x = 0;
    double y = 0;
  };

  // `x_name`: what x counts, "time" (seconds since 1970) or "step".
  Curve(std::string name, std::string x_name) : name_(std::move(name)), x_name_(std::move(x_name)) {}

  // In the order of x; ticks never decrease. Of the points that fall into one interval after thinning, the last is
  // kept.
  void add(const Point& point);

  // Removes the points from `x` on.
  void rewind(double x, std::uint64_t tick);

  const std::string& name() const { return name_; }
  const std::string& x_name() const { return x_name_; }
  const std::vector<Point>& points() const { return points_; }
  // The last one that was added, which may be too close to the ones before to be among points(). Nothing: none.
  const std::optional<Point>& latest() const { return latest_; }
  // True if a viewer that has seen everything up to `tick` needs all points again.
  bool rewritten_since(std::uint64_t tick) const { return rewritten_ > tick; }
  // The first point that such a viewer lacks.
  std::size_t first_after(std::uint64_t tick) const;

 private:
  std::string name_;
  std::string x_name_;
  std::vector<Point> points_;
  std::optional<Point> latest_;
  std::uint64_t rewritten_ = 0;  // the tick of the last thinning
  std::uint64_t stride_ = 1;     // of so many points that are added, one is kept
  std::uint64_t skipped_ = 0;
};

}  // namespace lockstep::dashboard
