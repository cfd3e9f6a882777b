#include "checkpoint/field_text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace lockstep::checkpoint {
namespace {

template <typename Value>
std::string refusal_of(const std::string& text) {
  Value value{};
  return parse_field(text, value) ? "accepted" : "refused";
}

TEST(FieldText, NumbersAreReadBackBitForBit) {
  const auto check = [](std::uint64_t bits) {
    const auto number = std::bit_cast<double>(bits);
    double read = 0;
    ASSERT_TRUE(parse_field(format_field(number), read)) << format_field(number);
    EXPECT_EQ(std::bit_cast<std::uint64_t>(read), bits) << format_field(number);
  };
  using Limits = std::numeric_limits<double>;
  for (const double number :
       {0.0, -0.0, 0.1, 1e-8, 1.0, 1e22, 1e23, 123456789.0, Limits::max(), Limits::lowest(), Limits::denorm_min(),
        Limits::infinity(), -Limits::infinity(), std::nan(""), -std::nan("7")}) {
    check(std::bit_cast<std::uint64_t>(number));
  }
  std::mt19937_64 random(3);
  for (int i = 0; i < 100'000; ++i) check(random());
  for (const std::int64_t number : {std::int64_t{0}, std::int64_t{-5}, std::numeric_limits<std::int64_t>::max(),
                                    std::numeric_limits<std::int64_t>::min()}) {
    std::int64_t read = 1;
    EXPECT_TRUE(parse_field(format_field(number), read));
    EXPECT_EQ(read, number);
  }
}

TEST(FieldText, OtherSpellingsAreRefused) {
  for (const char* text : {"", " 1", "1 ", "+1", "01", "1.0", "0x1", "1e400", "inf", "nan", "0x3ff0000000000000", "1,5",
                           "0X7ff8000000000000", "0x7FF8000000000000"}) {
    EXPECT_EQ(refusal_of<double>(text), "refused") << text;
  }
  for (const char* text : {"", "1.5", "007", "+3", "-", "-0", "9223372036854775808", "0x5"}) {
    EXPECT_EQ(refusal_of<std::int64_t>(text), "refused") << text;
  }
  for (const char* text : {"", "1", "True", "true "}) EXPECT_EQ(refusal_of<bool>(text), "refused") << text;
}

}  // namespace
}  // namespace lockstep::checkpoint
