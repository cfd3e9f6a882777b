#include "communicator/control/control_message.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

Result<ControlMessage> round_trip(const ControlMessage& message) {
  const Bytes frame = format_control_message(message);
  const auto header = parse_control_header(std::span(frame).first(kControlHeaderBytes));
  if (!header.ok()) return header.status();
  EXPECT_EQ(header->length, frame.size() - kControlHeaderBytes);
  return parse_control_payload(header->type, std::span(frame).subspan(kControlHeaderBytes));
}

TEST(ControlMessage, EveryMessageIsParsedAsItWasFormatted) {
  const OpDescriptor op{.sequence = 17,
                        .kind = OperationKind::reduce,
                        .dtype = DType::bf16,
                        .op = ReduceOp::max,
                        .root = 3,
                        .count = 1234567890123,
                        .digest = 42};
  const RankReport waits{.rank = 700, .version = 8, .completed = 16, .left = false, .waiting = op};
  const RankReport left{.rank = 1, .version = 2, .completed = 9, .left = true, .waiting = {}};
  const ControlMessage messages[] = {Heartbeat{},
                                     Abort{Status(StatusCode::peer_lost, "rank 2 was lost")},
                                     ProgressReport{{waits, left}},
                                     ProgressReport{},
                                     ProgressChanged{},
                                     RegionRequest{.from = 1, .to = 2, .id = 3},
                                     RegionGrant{.from = 2, .to = 1, .id = 3, .bytes = std::uint64_t{1} << 40},
                                     RegionDropped{.from = 2, .to = 1, .id = 3}};
  for (const auto& message : messages) {
    const auto again = round_trip(message);
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(*again, message) << "message of type " << message.index();
  }
}

TEST(ControlMessage, TruncationAtAnyByteIsRefused) {
  const Bytes frame = format_control_message(Abort{Status(StatusCode::aborted, "reason")});
  for (std::size_t size = 0; size < frame.size() - kControlHeaderBytes; ++size) {
    EXPECT_FALSE(parse_control_payload(1, std::span(frame).subspan(kControlHeaderBytes, size)).ok()) << size;
  }
  for (std::size_t size = 0; size < kControlHeaderBytes; ++size) {
    EXPECT_FALSE(parse_control_header(std::span(frame).first(size)).ok()) << size;
  }
}

TEST(ControlMessage, AnotherVersionIsNamedAndGarbageIsRejected) {
  Bytes frame = format_control_message(Heartbeat{});
  frame[4] = std::byte{9};
  const auto other_version = parse_control_header(std::span(frame).first(kControlHeaderBytes));
  EXPECT_NE(other_version.status().message().find("version 9"), std::string::npos);
  frame[0] = std::byte{'x'};
  EXPECT_EQ(parse_control_header(std::span(frame).first(kControlHeaderBytes)).status().code(),
            StatusCode::protocol_error);
}

TEST(ControlMessage, AsManyReportsAsAMessageMayHaveFit) {
  const OpDescriptor op{.sequence = 17};
  const RankReport waits{.rank = 1, .version = 8, .completed = 16, .left = false, .waiting = op};
  const ControlMessage message = ProgressReport{std::vector(kMaxReports, waits)};
  const auto again = round_trip(message);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(*again, message);
}

TEST(ControlMessage, ACountOfReportsThatAreNotThereIsRefused) {
  Bytes frame = format_control_message(ProgressReport{{RankReport{}}});
  frame[kControlHeaderBytes + 3] = std::byte{0x7f};
  EXPECT_FALSE(parse_control_payload(2, std::span(frame).subspan(kControlHeaderBytes)).ok());
}

TEST(ControlMessage, AnExcessiveLengthIsRefusedBeforeItIsRead) {
  Bytes frame = format_control_message(Heartbeat{});
  frame[11] = std::byte{0x7f};
  EXPECT_FALSE(parse_control_header(std::span(frame).first(kControlHeaderBytes)).ok());
}

TEST(ControlMessage, ALongReasonIsTruncated) {
  const auto again = round_trip(Abort{Status(StatusCode::internal, std::string(1 << 20, 'x'))});
  ASSERT_TRUE(again.ok());
  EXPECT_GT(std::get<Abort>(*again).reason.message().size(), 1000U);
}

}  // namespace
}  // namespace lockstep
