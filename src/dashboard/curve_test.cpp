#include "dashboard/curve.h"

#include <gtest/gtest.h>

namespace lockstep::dashboard {
namespace {

TEST(Curve, GivesAViewerOnlyThePointsThatItLacks) {
  Curve curve("loss", "step");
  for (std::uint64_t tick = 1; tick <= 10; ++tick) {
    curve.add({.tick = tick, .x = double(tick), .y = 0.5});
    curve.add({.tick = tick, .x = double(tick) + 0.5, .y = 0.4});
  }
  EXPECT_EQ(curve.first_after(0), 0U);
  EXPECT_EQ(curve.first_after(9), 18U);
  EXPECT_EQ(curve.first_after(10), 20U);
  EXPECT_FALSE(curve.rewritten_since(0));
}

TEST(Curve, StaysBoundedAndKeepsTheWholeRange) {
  Curve curve("loss", "step");
  for (std::uint64_t i = 1; i <= 1'000'000; ++i) curve.add({.tick = i, .x = double(i), .y = 0});
  EXPECT_LT(curve.points().size(), Curve::kMostPoints);
  EXPECT_GT(curve.points().size(), Curve::kMostPoints / 4);
  EXPECT_LT(curve.points().front().x, 5000);
  EXPECT_GT(curve.points().back().x, 995'000);
  for (std::size_t i = 1; i < curve.points().size(); ++i) EXPECT_GT(curve.points()[i].x, curve.points()[i - 1].x);
}

TEST(Curve, SendsEverythingAgainAfterItWasThinnedOut) {
  Curve curve("loss", "step");
  for (std::uint64_t i = 1; i < Curve::kMostPoints; ++i) curve.add({.tick = i, .x = double(i), .y = 0});
  EXPECT_FALSE(curve.rewritten_since(5));
  curve.add({.tick = Curve::kMostPoints, .x = double(Curve::kMostPoints), .y = 0});
  EXPECT_TRUE(curve.rewritten_since(Curve::kMostPoints - 1));
  EXPECT_EQ(curve.first_after(Curve::kMostPoints - 1), 0U);
  EXPECT_FALSE(curve.rewritten_since(Curve::kMostPoints));
}

}  // namespace
}  // namespace lockstep::dashboard
