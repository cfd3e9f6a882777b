#include "bench/worker/pattern.h"

#include <gtest/gtest.h>

#include <cstring>

namespace lockstep::bench {
namespace {

constexpr std::size_t kCount = 2 * Pattern::kPeriod + 100;

class PatternOf : public ::testing::TestWithParam<DType> {
 protected:
  // What a correct all-reduce that sums in rank order leaves behind.
  std::vector<std::byte> sums_in_rank_order(const Pattern& pattern, std::uint64_t iteration) const {
    const std::size_t element = element_size(GetParam());
    std::vector<std::byte> sums(kCount * element);
    std::vector<std::byte> input(kCount * element);
    for (int rank = 0; rank < pattern.ranks(); ++rank) {
      pattern.fill(input.data(), 0, kCount, rank, iteration);
      for (std::size_t i = 0; i < sums.size(); i += element)
        encode(GetParam(), decode(GetParam(), &sums[i]) + decode(GetParam(), &input[i]), &sums[i]);
    }
    return sums;
  }
};

TEST_P(PatternOf, AcceptsRightSums) {
  const Pattern pattern(GetParam(), 5);
  EXPECT_EQ(pattern.wrong_sums(sums_in_rank_order(pattern, 3).data(), 0, kCount, 3), 0u);
}

TEST_P(PatternOf, CountsWrongElements) {
  const Pattern pattern(GetParam(), 5);
  const std::size_t element = element_size(GetParam());
  std::vector<std::byte> sums = sums_in_rank_order(pattern, 3);
  for (const std::size_t i : {std::size_t{0}, Pattern::kPeriod, kCount - 1})
    encode(GetParam(), decode(GetParam(), &sums[i * element]) + 1, &sums[i * element]);
  EXPECT_EQ(pattern.wrong_sums(sums.data(), 0, kCount, 3), 3u);
}

TEST_P(PatternOf, NoticesResultsOfAnotherIterationOrAnotherPlace) {
  const Pattern pattern(GetParam(), 2);
  const std::vector<std::byte> sums = sums_in_rank_order(pattern, 3);
  EXPECT_GT(pattern.wrong_sums(sums.data(), 0, kCount, 4), kCount / 4);
  EXPECT_GT(pattern.wrong_sums(sums.data(), 4096, kCount, 3), kCount / 4);
  const std::size_t element = element_size(GetParam());
  EXPECT_EQ(pattern.wrong_sums(sums.data() + 100 * element, 100, kCount - 100, 3), 0u);
}

TEST_P(PatternOf, ComparesCopiesBitByBit) {
  const Pattern pattern(GetParam(), 3);
  std::vector<std::byte> copy(kCount * element_size(GetParam()));
  pattern.fill(copy.data(), 0, kCount, 1, 9);
  EXPECT_EQ(pattern.wrong_copies(copy.data(), 0, kCount, 1, 9), 0u);
  EXPECT_GT(pattern.wrong_copies(copy.data(), 0, kCount, 2, 9), kCount / 4);
  copy[5] ^= std::byte{1};
  EXPECT_EQ(pattern.wrong_copies(copy.data(), 0, kCount, 1, 9), 1u);
}

INSTANTIATE_TEST_SUITE_P(AllTypes, PatternOf,
                         ::testing::Values(DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8, DType::u8,
                                           DType::i32, DType::i64),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST(Pattern, CountsNaNAsWrong) {
  const Pattern pattern(DType::f32, 2);
  const std::vector<float> values(10, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(pattern.wrong_sums(values.data(), 0, values.size(), 0), values.size());
}

TEST(Encode, RoundsHalvesToNearestEven) {
  const auto f16 = [](double value) {
    std::uint16_t bits;
    encode(DType::f16, value, reinterpret_cast<std::byte*>(&bits));
    return bits;
  };
  EXPECT_EQ(f16(1.0), 0x3c00);
  EXPECT_EQ(f16(-2.5), 0xc100);
  EXPECT_EQ(f16(1.0 + 0x1p-11), 0x3c00);      // half-way, to even
  EXPECT_EQ(f16(1.0 + 3 * 0x1p-11), 0x3c02);  // half-way, to even
  EXPECT_EQ(f16(0x1p-24), 0x0001);            // the smallest one
  EXPECT_EQ(f16(2.0 - 0x1p-12), 0x4000);      // carries into the exponent
}

TEST(Digest, SeesEveryBit) {
  std::vector<std::byte> data(77);
  const std::uint64_t before = digest(data.data(), data.size());
  for (auto& byte : data) {
    byte ^= std::byte{0x10};
    EXPECT_NE(digest(data.data(), data.size()), before);
    byte ^= std::byte{0x10};
  }
  EXPECT_EQ(digest(data.data(), data.size()), before);
  EXPECT_NE(digest(data.data(), data.size() - 1), before);
}

}  // namespace
}  // namespace lockstep::bench
