#include "checkpoint/state_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace lockstep::checkpoint {
namespace {

using ::testing::HasSubstr;

std::string head_of(const std::vector<TensorInfo>& infos, const Metadata& metadata = {}) {
  return lay_out_safetensors(infos, metadata).value().head;
}

Manifest example_manifest() { return {.step = 12, .epoch = 1, .job = "a", .generation = 3, .values = {{"best", 0.5}}}; }

Bytes example_header() {
  return format_state_header(40, example_manifest(),
                             {.model = head_of({{"weight", Dtype::f32, {2, 3}}, {"count", Dtype::i64, {}}}),
                              .optimizer = head_of({{"state.0.exp_avg", Dtype::f32, {2, 3}}}, {{"group.0.lr", "0.1"}}),
                              .values = std::nullopt})
      .value();
}

std::string refusal(const Bytes& bytes) {
  const auto parsed = parse_state_header(bytes);
  if (parsed.ok()) return "accepted";
  EXPECT_EQ(parsed.status().code(), StatusCode::protocol_error);
  return parsed.status().message();
}

TEST(StateHeader, WhatIsFormattedIsParsed) {
  const auto parsed = parse_state_header(example_header());
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->progress, 40);
  EXPECT_EQ(parsed->manifest, example_manifest());
  ASSERT_EQ(parsed->model.entries.size(), 2U);
  EXPECT_EQ(parsed->model.data_bytes, 32U);
  EXPECT_EQ(parsed->model.entries[0].info, (TensorInfo{"count", Dtype::i64, {}}));  // the larger elements first
  ASSERT_TRUE(parsed->optimizer.has_value());
  EXPECT_EQ(parsed->optimizer->metadata.at("group.0.lr"), "0.1");
  EXPECT_FALSE(parsed->values.has_value());
}

TEST(StateHeader, EveryTruncationAndEveryExtraByteIsRefused) {
  const Bytes bytes = example_header();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(refusal(Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size))), "accepted") << size;
  }
  Bytes longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_THAT(refusal(longer), HasSubstr("length"));
}

TEST(StateHeader, FlippedBitsNeverGoBeyondTheBytes) {
  const Bytes bytes = example_header();
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    Bytes changed = bytes;
    const int flips = 1 + static_cast<int>(random() % 4);
    for (int flip = 0; flip < flips; ++flip) {
      changed[random() % changed.size()] ^= static_cast<std::byte>(1U << (random() % 8));
    }
    (void)parse_state_header(changed).ok();  // sanitizers check the rest
  }
}

TEST(StateHeader, NamesWhatIsWrong) {
  Bytes other_version = example_header();
  other_version[4] = std::byte{9};
  EXPECT_THAT(refusal(other_version), HasSubstr("version 9"));
  EXPECT_THAT(refusal(Bytes(100)), HasSubstr("does not begin like"));
  const auto negative = format_state_header(-1, {}, {.model = head_of({}), .optimizer = {}, .values = {}});
  EXPECT_THAT(refusal(negative.value()), HasSubstr("-1 commits"));
  const auto bad_head = format_state_header(1, {}, {.model = head_of({}), .optimizer = "rubbish!", .values = {}});
  EXPECT_THAT(refusal(bad_head.value()), HasSubstr("the description of the optimizer"));
}

// A head may announce any amount of data; it reserves nothing.
TEST(StateHeader, AnAnnouncedSizeAllocatesNothing) {
  const auto huge = format_state_header(
      1, {}, {.model = head_of({{"w", Dtype::u8, {std::int64_t{1} << 62}}}), .optimizer = {}, .values = {}});
  const auto parsed = parse_state_header(huge.value());
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->model.data_bytes, std::uint64_t{1} << 62);
}

}  // namespace
}  // namespace lockstep::checkpoint
