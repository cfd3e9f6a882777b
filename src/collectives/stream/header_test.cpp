#include "collectives/stream/header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

StreamHeader example() {
  return {.algorithm = StreamAlgorithm::pair,
          .chunk = 1,
          .chunks = 2,
          .descriptor = {.sequence = 17,
                         .kind = OperationKind::reduce,
                         .dtype = DType::bf16,
                         .op = ReduceOp::avg,
                         .root = 3,
                         .count = 0x123456789abcULL,
                         .digest = 0xfedcba9876543210ULL}};
}

TEST(StreamHeader, IsParsedAsItWasFormatted) {
  const auto parsed = parse_stream_header(format_stream_header(example()));
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(*parsed, example());
}

// The layout of docs/wire_format.md, byte by byte: a change must come with a new version.
TEST(StreamHeader, HasTheDocumentedLayout) {
  const std::array<unsigned char, kStreamHeaderBytes> wanted{
      'L', 'K', 'S', 'D',  1,    0,    3,    2,    3,    1, 1, 0,    3,    0,    0,    0,    17,   0,    0,    0, 0,
      0,   0,   0,   0xbc, 0x9a, 0x78, 0x56, 0x34, 0x12, 0, 0, 0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe, 2, 0};
  EXPECT_TRUE(std::ranges::equal(format_stream_header(example()), std::as_bytes(std::span(wanted))));
}

struct Damage {
  const char* name;
  std::size_t offset;
  unsigned char value;
  const char* expected;
};

class DamagedStreamHeader : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedStreamHeader, IsRefusedWithTheReason) {
  auto bytes = format_stream_header(example());
  bytes[GetParam().offset] = std::byte{GetParam().value};
  const Status status = parse_stream_header(bytes).status();
  EXPECT_EQ(status.code(), StatusCode::protocol_error);
  EXPECT_THAT(status.message(), HasSubstr(GetParam().expected));
  const Status explained = explain_header_difference(0, format_stream_header(example()), 5, bytes);
  EXPECT_EQ(explained.code(), StatusCode::protocol_error);
  EXPECT_THAT(explained.message(), HasSubstr("rank 5"));
}

INSTANTIATE_TEST_SUITE_P(Bytes, DamagedStreamHeader,
                         ::testing::Values(Damage{"magic", 0, 'X', "magic"}, Damage{"version", 4, 2, "version 2"},
                                           Damage{"no_algorithm", 6, 0, "algorithm 0"},
                                           Damage{"algorithm", 6, 99, "algorithm 99"},
                                           Damage{"kind", 7, 200, "operation 200"}, Damage{"dtype", 8, 8, "dtype 8"},
                                           Damage{"op", 9, 8, "reduction 8"}, Damage{"reserved", 63, 1, "reserved"}),
                         [](const auto& info) { return info.param.name; });

TEST(StreamHeader, OfAnotherLengthIsRefused) {
  const auto bytes = format_stream_header(example());
  EXPECT_EQ(parse_stream_header(std::span(bytes).first(63)).status().code(), StatusCode::protocol_error);
  EXPECT_EQ(parse_stream_header({}).status().code(), StatusCode::protocol_error);
}

TEST(StreamHeader, DifferenceNamesBothSides) {
  StreamHeader theirs = example();
  theirs.descriptor.count = 5;
  const Status status = explain_header_difference(2, format_stream_header(example()), 1, format_stream_header(theirs));
  EXPECT_EQ(status, mismatch_error(2, example().descriptor, 1, theirs.descriptor));
}

TEST(StreamHeader, AnotherAlgorithmIsAMismatchToo) {
  StreamHeader theirs = example();
  theirs.algorithm = StreamAlgorithm::direct;
  theirs.chunk = theirs.chunks = 0;
  const Status status = explain_header_difference(2, format_stream_header(example()), 1, format_stream_header(theirs));
  EXPECT_EQ(status.code(), StatusCode::mismatch);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 runs direct, rank 2 runs pair on chunk 1 of 2"));
  EXPECT_THAT(status.message(), HasSubstr("LOCKSTEP_ALGORITHM"));
}

}  // namespace
}  // namespace lockstep
