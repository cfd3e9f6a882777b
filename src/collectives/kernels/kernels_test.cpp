#include "collectives/kernels/kernels.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "collectives/kernels/call.h"  // before Highway: names the targets that are compiled
#include "collectives/testing/reference_kernels.h"
#include "hwy/targets.h"

namespace lockstep::kernels_test {
namespace {

// Memory of `bytes` bytes that starts `shift` bytes after a cache line, with guards around.
class Placed {
 public:
  Placed(const Bytes& content, std::size_t bytes, std::size_t shift) : bytes_(bytes) {
    memory_.assign(kGuard + shift + bytes + 2 * kGuard, std::byte{0xa5});
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    start_ = (kGuard - address % kGuard) + shift;
    std::copy_n(content.begin(), std::min(bytes, content.size()), memory_.begin() + static_cast<long>(start_));
  }
  std::byte* data() { return memory_.data() + start_; }
  bool holds(const Bytes& content) const {
    return std::equal(content.begin(), content.begin() + static_cast<long>(bytes_),
                      memory_.begin() + static_cast<long>(start_));
  }
  bool guards_untouched() const {
    const auto intact = [](std::byte b) { return b == std::byte{0xa5}; };
    return std::all_of(memory_.begin(), memory_.begin() + static_cast<long>(start_), intact) &&
           std::all_of(memory_.begin() + static_cast<long>(start_ + bytes_), memory_.end(), intact);
  }

 private:
  static constexpr std::size_t kGuard = 64;
  Bytes memory_;
  std::size_t bytes_;
  std::size_t start_ = 0;
};

// Where the results go.
enum class Aliasing {
  one_other,
  two_others,
  five_others,
  last_src,
  first_two_srcs_swapped,
  all_srcs,
  all_srcs_and_one
};
constexpr Aliasing kAliasings[] = {Aliasing::one_other,
                                   Aliasing::two_others,
                                   Aliasing::five_others,
                                   Aliasing::last_src,
                                   Aliasing::first_two_srcs_swapped,
                                   Aliasing::all_srcs,
                                   Aliasing::all_srcs_and_one};

struct Case {
  DType dtype;
  ReduceOp op;
  std::size_t srcs;
  int divisor;
  std::string name(std::size_t count, Aliasing aliasing) const {
    return std::string(to_string(dtype)) + " " + std::string(to_string(op)) + " srcs " + std::to_string(srcs) +
           " divisor " + std::to_string(divisor) + " count " + std::to_string(count) + " aliasing " +
           std::to_string(static_cast<int>(aliasing));
  }
};

std::vector<Bytes> inputs_for(const Case& c, std::size_t count) {
  std::vector<Bytes> inputs;
  for (std::size_t k = 0; k < c.srcs; ++k) inputs.push_back(hard_inputs(c.dtype, count, 1000 * c.srcs + k));
  return inputs;
}

// Reduces the first `count` of `inputs` at shifted addresses and compares every bit with `want`.
::testing::AssertionResult reduces_to(const Case& c, std::span<const Bytes> inputs, const Bytes& want,
                                      std::size_t count, Aliasing aliasing) {
  const std::size_t size = element_size(c.dtype);
  std::vector<Placed> srcs, others;
  for (std::size_t k = 0; k < c.srcs; ++k) srcs.emplace_back(inputs[k], count * size, (count + 3 * k) % 16 * size);
  const std::size_t extra = aliasing == Aliasing::five_others ? 5 : aliasing == Aliasing::two_others ? 2 : 1;
  for (std::size_t k = 0; k < extra; ++k) others.emplace_back(Bytes(), count * size, (5 * count + k) % 16 * size);

  std::vector<Placed*> dsts;
  switch (aliasing) {
    case Aliasing::one_other:
    case Aliasing::two_others:
    case Aliasing::five_others: break;
    case Aliasing::last_src: dsts.push_back(&srcs.back()); break;
    case Aliasing::first_two_srcs_swapped:
      if (c.srcs > 1) dsts.push_back(&srcs[1]);
      dsts.push_back(&srcs[0]);
      break;
    case Aliasing::all_srcs:
    case Aliasing::all_srcs_and_one:
      for (Placed& src : srcs) dsts.push_back(&src);
      break;
  }
  if (aliasing <= Aliasing::five_others || aliasing == Aliasing::all_srcs_and_one) {
    for (Placed& other : others) dsts.push_back(&other);
  }

  std::vector<const std::byte*> from;
  for (Placed& src : srcs) from.push_back(src.data());
  std::vector<std::byte*> to;
  for (Placed* dst : dsts) to.push_back(dst->data());
  reduce(c.dtype, c.op, from, to, count, c.divisor);

  for (std::size_t k = 0; k < dsts.size(); ++k) {
    if (!dsts[k]->holds(want)) return ::testing::AssertionFailure() << "dst " << k << ": " << c.name(count, aliasing);
  }
  for (std::size_t k = 0; k < srcs.size(); ++k) {
    const bool is_dst = std::find(dsts.begin(), dsts.end(), &srcs[k]) != dsts.end();
    if (!is_dst && !srcs[k].holds(inputs[k])) {
      return ::testing::AssertionFailure() << "src " << k << " changed: " << c.name(count, aliasing);
    }
    if (!srcs[k].guards_untouched()) return ::testing::AssertionFailure() << "guard: " << c.name(count, aliasing);
  }
  for (const Placed& other : others) {
    if (!other.guards_untouched()) return ::testing::AssertionFailure() << "guard: " << c.name(count, aliasing);
  }
  return ::testing::AssertionSuccess();
}

// Everything runs once on each instruction set that this machine has, and all must give the bits of
// the reference: so they agree with each other, NaN included.
class Kernels : public ::testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

INSTANTIATE_TEST_SUITE_P(Targets, Kernels, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

TEST_P(Kernels, RunOnTheTargetAskedFor) { EXPECT_STREQ(kernel_target(), hwy::TargetName(GetParam())); }

TEST_P(Kernels, EveryDTypeOpAndNumberOfSourcesAtEveryCount) {
  constexpr std::size_t kMost = 300;
  for (DType dtype : kDTypes) {
    for (ReduceOp op : kOps) {
      if (!allowed(dtype, op)) continue;
      for (std::size_t srcs = 1; srcs <= 9; ++srcs) {
        const Case c{dtype, op, srcs, op == ReduceOp::avg ? static_cast<int>(srcs) : 1};
        const std::vector<Bytes> inputs = inputs_for(c, kMost);
        const Bytes want = expected(dtype, op, inputs, kMost, c.divisor);
        for (std::size_t count = 0; count <= kMost; ++count) {
          ASSERT_TRUE(reduces_to(c, inputs, want, count, kAliasings[count % std::size(kAliasings)]));
        }
      }
    }
  }
}

TEST_P(Kernels, EveryAliasingAtCountsAroundVectorsAndBlocks) {
  constexpr std::array<std::size_t, 14> kCounts = {1, 3, 8, 31, 32, 67, 255, 1023, 1024, 1025, 2047, 2049, 8191, 8225};
  for (DType dtype : kDTypes) {
    for (ReduceOp op : {ReduceOp::avg, ReduceOp::prod, ReduceOp::max}) {
      for (std::size_t srcs : {1, 2, 3, 4, 5, 7}) {
        const Case c{dtype, op, srcs, op == ReduceOp::avg ? static_cast<int>(srcs) : 1};
        const std::vector<Bytes> inputs = inputs_for(c, kCounts.back());
        const Bytes want = expected(dtype, op, inputs, kCounts.back(), c.divisor);
        for (std::size_t count : kCounts) {
          for (Aliasing aliasing : kAliasings) ASSERT_TRUE(reduces_to(c, inputs, want, count, aliasing));
        }
      }
    }
  }
}

TEST_P(Kernels, EveryDivisorDividesExactly) {
  constexpr std::size_t kCount = 517;
  for (DType dtype : kDTypes) {
    for (ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::prod, ReduceOp::min}) {
      for (std::size_t srcs : {1, 2, 6}) {
        for (int divisor :
             {0,  1,   2,   3,   4,   5,   6,    7,     8,        10,      13,
              64, 127, 128, 129, 255, 256, 1000, 65536, 16777217, 1 << 30, std::numeric_limits<int>::max()}) {
          const Case c{dtype, op, srcs, divisor};
          const std::vector<Bytes> inputs = inputs_for(c, kCount);
          const Bytes want = expected(dtype, op, inputs, kCount, divisor);
          ASSERT_TRUE(reduces_to(c, inputs, want, kCount, Aliasing::one_other));
        }
      }
    }
  }
}

TEST_P(Kernels, LargeOddCounts) {
  for (DType dtype : {DType::f32, DType::bf16, DType::u8, DType::i64}) {
    for (std::size_t srcs : {2, 5}) {
      const Case c{dtype, ReduceOp::avg, srcs, 3};
      constexpr std::size_t kCount = 300'007;
      const std::vector<Bytes> inputs = inputs_for(c, kCount);
      const Bytes want = expected(dtype, c.op, inputs, kCount, c.divisor);
      ASSERT_TRUE(reduces_to(c, inputs, want, kCount, Aliasing::all_srcs));
    }
  }
}

TEST_P(Kernels, SixteenAndMoreSourcesInOnePass) {
  for (DType dtype : kDTypes) {
    for (std::size_t srcs : {10, 15, 16, 17, 33}) {
      const Case c{dtype, ReduceOp::sum, srcs, 1};
      const std::vector<Bytes> inputs = inputs_for(c, 2500);
      ASSERT_TRUE(reduces_to(c, inputs, expected(dtype, c.op, inputs, 2500, 1), 2500, Aliasing::all_srcs));
    }
  }
}

TEST_P(Kernels, EveryHalfIsWidenedAndRoundedToNearestEven) {
  constexpr std::size_t kAll = 65536;
  for (DType dtype : {DType::f16, DType::bf16}) {
    Bytes every(kAll * 2), steps(kAll * 2);
    for (std::size_t i = 0; i < kAll; ++i) {
      const auto bits = static_cast<std::uint16_t>(i);
      std::memcpy(every.data() + 2 * i, &bits, 2);
    }
    for (std::size_t step : {0x0000, 0x8000, 0x0001, 0x8001, 0x0400, 0x1400, 0x3c00, 0xbc01, 0x3555, 0x4900, 0x7bff}) {
      const auto bits = static_cast<std::uint16_t>(step);
      for (std::size_t i = 0; i < kAll; ++i) std::memcpy(steps.data() + 2 * i, &bits, 2);
      const std::vector<Bytes> inputs = {every, steps};
      for (ReduceOp op : {ReduceOp::sum, ReduceOp::prod}) {
        const Case c{dtype, op, 2, 1};
        ASSERT_TRUE(reduces_to(c, inputs, expected(dtype, op, inputs, kAll, 1), kAll, Aliasing::one_other));
      }
    }
  }
}

template <typename T>
T reduced(ReduceOp op, std::vector<T> inputs, int divisor = 1) {
  T result{};
  std::vector<const std::byte*> srcs;
  for (const T& input : inputs) srcs.push_back(reinterpret_cast<const std::byte*>(&input));
  std::byte* dst = reinterpret_cast<std::byte*>(&result);
  reduce(dtype_of<T>(), op, srcs, std::span(&dst, 1), 1, divisor);
  return result;
}

TEST_P(Kernels, CombineInTheOrderOfTheSources) {
  EXPECT_EQ(reduced<float>(ReduceOp::sum, {1e30f, 1.0f, -1e30f}), 0.0f);
  EXPECT_EQ(reduced<float>(ReduceOp::sum, {1e30f, -1e30f, 1.0f}), 1.0f);
  EXPECT_EQ(reduced<double>(ReduceOp::sum, {1e300, 1.0, -1e300, 1.0, 0.0, 2.0}), 3.0);
  EXPECT_TRUE(std::signbit(reduced<float>(ReduceOp::min, {-0.0f, 0.0f})));
  EXPECT_FALSE(std::signbit(reduced<float>(ReduceOp::min, {0.0f, -0.0f})));
}

TEST_P(Kernels, ANaNAnywhereGivesTheOneNaN) {
  const float payload = std::bit_cast<float>(0xffc12345u);
  for (ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::prod, ReduceOp::min, ReduceOp::max}) {
    for (std::size_t at = 0; at < 5; ++at) {
      std::vector<float> inputs = {1, -2, std::numeric_limits<float>::infinity(), 4, 5};
      inputs[at] = payload;
      EXPECT_EQ(std::bit_cast<std::uint32_t>(reduced(op, inputs)), 0x7fc00000u) << to_string(op) << " at " << at;
    }
  }
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(std::bit_cast<std::uint32_t>(reduced<float>(ReduceOp::sum, {infinity, -infinity})), 0x7fc00000u);
}

TEST_P(Kernels, IntegersWrapAndDivideTowardsZero) {
  EXPECT_EQ(reduced<std::int8_t>(ReduceOp::sum, {127, 1}), -128);
  EXPECT_EQ(reduced<std::int8_t>(ReduceOp::prod, {-128, -1}), -128);
  EXPECT_EQ(reduced<std::uint8_t>(ReduceOp::avg, {200, 100}, 2), 22);
  EXPECT_EQ(reduced<std::int32_t>(ReduceOp::avg, {-3, -4}, 2), -3);
  EXPECT_EQ(reduced<std::int64_t>(ReduceOp::prod, {std::int64_t{1} << 62, 6}),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(reduced<std::int64_t>(ReduceOp::avg, {-7, 0}, 2), -3);
}

TEST_P(Kernels, HalfSumsRoundOnceAtTheEnd) {
  // 2048 + 1 + 1: with a rounding after each step, f16 would stay at 2048.
  EXPECT_EQ(reduced<Float16>(ReduceOp::sum, {{0x6800}, {0x3c00}, {0x3c00}}).bits, 0x6801);
  // 256 + 1 + 1 in bf16 in the same way.
  EXPECT_EQ(reduced<BFloat16>(ReduceOp::sum, {{0x4380}, {0x3f80}, {0x3f80}}).bits, 0x4381);
}

TEST(KernelsCopy, OneSourceKeepsEveryBit) {
  EXPECT_EQ(std::bit_cast<std::uint32_t>(reduced<float>(ReduceOp::sum, {std::bit_cast<float>(0xffc12345u)})),
            0xffc12345u);
  EXPECT_EQ(reduced<Float16>(ReduceOp::max, {{0xfe01}}).bits, 0xfe01);
}

TEST(KernelsCopy, NoDestinationIsNoWork) {
  const float value = 1;
  const std::byte* src = reinterpret_cast<const std::byte*>(&value);
  reduce(DType::f32, ReduceOp::sum, std::span(&src, 1), {}, 1);
}

#ifndef NDEBUG
TEST(KernelsDeathTest, BitwiseOperationsOnFloatsAreAProgrammingError) {
  EXPECT_DEATH(reduced<float>(ReduceOp::bit_and, {1, 2}), "is_integer");
}
#endif

}  // namespace
}  // namespace lockstep::kernels_test
