#include "bench/worker/rotation.h"

#include <gtest/gtest.h>

#include <set>

namespace lockstep::bench {
namespace {

TEST(ShapeOf, CountsAsNcclTestsDoes) {
  const Shape reduce = shape_of(Collective::all_reduce, DType::f32, 4, 1024);
  EXPECT_EQ(reduce.bytes, 1024u);
  EXPECT_EQ(reduce.input_count, 256u);
  EXPECT_TRUE(reduce.in_place);
  const Shape gather = shape_of(Collective::all_gather, DType::f32, 4, 1024);
  EXPECT_EQ(gather.bytes, 1024u);
  EXPECT_EQ(gather.input_count, 64u);
  EXPECT_EQ(gather.output_count, 256u);
  const Shape scatter = shape_of(Collective::reduce_scatter, DType::f32, 4, 1024);
  EXPECT_EQ(scatter.input_count, 256u);
  EXPECT_EQ(scatter.output_count, 64u);
  EXPECT_EQ(shape_of(Collective::barrier, DType::f32, 4, 1024).bytes, 0u);
}

TEST(ShapeOf, HasAtLeastOneElementOfEachRank) {
  EXPECT_EQ(shape_of(Collective::all_gather, DType::f32, 4, 8).bytes, 16u);
  EXPECT_EQ(shape_of(Collective::all_reduce, DType::f64, 4, 4).bytes, 8u);
}

TEST(Rotation, WalksThroughMoreThanTheCacheBeforeItReusesASlot) {
  constexpr std::size_t kCache = 1 << 20;
  const Shape shape = shape_of(Collective::all_reduce, DType::f32, 2, 100'000);
  std::vector<std::byte> arena(arena_bytes(shape, DType::f32, kCache));
  Rotation rotation(arena.data(), arena.size());
  std::set<void*> seen;
  Operation operation;
  while (seen.insert((operation = rotation.next(Collective::all_reduce, DType::f32, shape, true)).output).second) {
    EXPECT_LE(static_cast<std::byte*>(operation.output) + shape.bytes, arena.data() + arena.size());
  }
  EXPECT_GT(seen.size() * shape.bytes, kCache);
}

TEST(Rotation, HasTwoSlotsOfTheLargestSize) {
  const Shape shape = shape_of(Collective::all_gather, DType::f32, 2, 10 << 20);
  std::vector<std::byte> arena(arena_bytes(shape, DType::f32, 1 << 20));
  Rotation rotation(arena.data(), arena.size());
  const Operation first = rotation.next(Collective::all_gather, DType::f32, shape, true);
  const Operation second = rotation.next(Collective::all_gather, DType::f32, shape, true);
  const auto end = [&](const Operation& operation) { return static_cast<std::byte*>(operation.output) + shape.bytes; };
  EXPECT_GE(static_cast<std::byte*>(first.output) - static_cast<std::byte*>(first.input), 5 << 20);
  EXPECT_GE(static_cast<std::byte*>(second.input), end(first));
  EXPECT_LE(end(second), arena.data() + arena.size());
}

TEST(Rotation, StaysInOnePlaceWhenWarm) {
  const Shape shape = shape_of(Collective::all_reduce, DType::f32, 2, 64);
  std::vector<std::byte> arena(arena_bytes(shape, DType::f32, 1 << 16));
  Rotation rotation(arena.data(), arena.size());
  const void* const first = rotation.next(Collective::all_reduce, DType::f32, shape, false).output;
  EXPECT_EQ(rotation.next(Collective::all_reduce, DType::f32, shape, false).output, first);
}

}  // namespace
}  // namespace lockstep::bench
