#include "checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "checkpoint/hash.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::HasSubstr;

Manifest example() {
  return {.step = 1200,
          .epoch = 3,
          .world_size = 4,
          .created = "2026-11-16T01:33:00Z",
          .lockstep = "0.1.0",
          .job = "5f0e",
          .generation = 7,
          .optimizer = OptimizerRecord{"torch::optim::Adam", {3, 1}},
          .sampler = DistributedSamplerState{3, 42, 60000, 1280, true},
          .values = {{"best", 0.1},
                     {"count", std::int64_t{-7}},
                     {"infinite", -std::numeric_limits<double>::infinity()},
                     {"raw", std::string("\xff\0x", 3)},
                     {"text", std::string("süß\n\"")},
                     {"whole", 2.0}},
          .files = {{"model.safetensors", 1234, std::string(32, 'a')}}};
}

std::string text_of(const Manifest& manifest) { return format_manifest(manifest).value(); }

// With a hash that fits.
std::string with_hash(const std::string& rest) {
  return "{\"xxh3\":\"" + hash_of(std::as_bytes(std::span(rest.data(), rest.size()))) + "\"" + rest;
}
std::string refusal(const std::string& text) {
  const auto parsed = parse_manifest(text);
  return parsed.ok() ? "accepted" : parsed.status().message();
}
std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  text.replace(at, what.size(), with);
  const std::size_t begin = text.find("\",");
  return with_hash(text.substr(begin + 1));
}

TEST(Manifest, WhatIsWrittenIsReadBackWithItsTypes) {
  const auto parsed = parse_manifest(text_of(example()));
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(*parsed, example());
  EXPECT_EQ(parse_manifest(text_of({})).value(), Manifest{});
}

TEST(Manifest, NumbersAreReadBackBitForBit) {
  Manifest manifest;
  manifest.values = {{"a", 0.1 + 0.2},
                     {"b", std::numeric_limits<double>::denorm_min()},
                     {"c", -0.0},
                     {"d", 1e300},
                     {"max", std::numeric_limits<std::int64_t>::max()},
                     {"min", std::numeric_limits<std::int64_t>::min()},
                     {"nan", std::nan("")}};
  const auto parsed = parse_manifest(text_of(manifest)).value();
  EXPECT_TRUE(std::isnan(std::get<double>(parsed.values.at("nan"))));
  EXPECT_TRUE(std::signbit(std::get<double>(parsed.values.at("c"))));
  for (const char* name : {"a", "b", "c", "d", "max", "min"})
    EXPECT_EQ(parsed.values.at(name), manifest.values.at(name));
}

TEST(Manifest, EveryFlippedBitAndEveryTruncationIsDetected) {
  const std::string text = text_of(example());
  for (std::size_t i = 0; i < text.size(); ++i) {
    EXPECT_NE(refusal(text.substr(0, i)), "accepted") << i;
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = text;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
      EXPECT_NE(refusal(flipped), "accepted") << i << " bit " << bit;
    }
  }
}

TEST(Manifest, NamesBothVersions) {
  EXPECT_THAT(refusal(replaced(text_of(example()), "\"format\": 2", "\"format\": 3")),
              ::testing::AllOf(HasSubstr("format version 3"), HasSubstr("reads version 2")));
  EXPECT_THAT(refusal(replaced(text_of(example()), "\"format\": 2", "\"format\": 0")), HasSubstr("format version 0"));
}

TEST(Manifest, TheFirstVersionHasNoJob) {
  std::string text = replaced(text_of(example()), "\"format\": 2", "\"format\": 1");
  text = replaced(text, " \"job\": \"5f0e\",\n", "");
  text = replaced(text, " \"generation\": 7,\n", "");
  const auto parsed = parse_manifest(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  Manifest expected = example();
  expected.job.clear();
  expected.generation = 0;
  EXPECT_EQ(*parsed, expected);
}

TEST(Manifest, RefusesWhatNoWriterWrites) {
  const std::string text = text_of(example());
  EXPECT_THAT(refusal(replaced(text, "model.safetensors", "../../etc/passwd")), HasSubstr("no name for a file"));
  EXPECT_THAT(refusal(replaced(text, "model.safetensors", ".hidden")), HasSubstr("no name for a file"));
  EXPECT_THAT(refusal(replaced(text, "model.safetensors", "snapshot.json")), HasSubstr("no name for a file"));
  EXPECT_THAT(refusal(replaced(text, "\"bytes\": 1234", "\"bytes\": -1")), HasSubstr("-1 bytes"));
  EXPECT_THAT(refusal(replaced(text, "\"step\": 1200", "\"step\": 1.5")), HasSubstr("\"step\""));
  EXPECT_THAT(refusal(replaced(text, "\"step\": 1200", "\"step\": 18446744073709551615")), HasSubstr("64 bits"));
  EXPECT_THAT(refusal(replaced(text, "\"step\"", "\"stop\"")), HasSubstr("no \"step\""));
  EXPECT_THAT(refusal(replaced(text, "ff0078", "ff007")), HasSubstr("hexadecimal"));
  EXPECT_THAT(refusal(with_hash(",\"a\":" + std::string(100'000, '['))), HasSubstr("nested"));
  EXPECT_THAT(refusal(with_hash(",")), HasSubstr("not JSON"));
  EXPECT_THAT(refusal(""), HasSubstr("begin like"));
}

TEST(Manifest, ANameThatIsNotUtf8IsRefused) {
  Manifest manifest;
  manifest.values["\xff"] = std::int64_t{1};
  EXPECT_THAT(format_manifest(manifest).status().message(), HasSubstr("UTF-8"));
}

}  // namespace
}  // namespace lockstep::checkpoint
