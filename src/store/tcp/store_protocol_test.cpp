#include "store/tcp/store_protocol.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::store_protocol {
namespace {

std::vector<Request> all_requests() {
  std::vector<Request> requests;
  std::uint64_t id = 1;
  for (const Op op : {Op::set, Op::append, Op::set_last_will}) {
    requests.push_back({.id = id++, .op = op, .keys = {"key"}, .value = "value", .expected = {}});
  }
  for (const Op op : {Op::remove, Op::list, Op::withdraw_last_will}) {
    requests.push_back({.id = id++, .op = op, .keys = {"key"}, .value = {}, .expected = {}});
  }
  requests.push_back({.id = id++, .op = Op::get, .keys = {"key"}, .value = {}, .expected = {}, .timeout_us = 7});
  requests.push_back(
      {.id = id++, .op = Op::wait, .keys = {"a", "", "c"}, .value = {}, .expected = {}, .timeout_us = 9});
  requests.push_back({.id = id++, .op = Op::check, .keys = {}, .value = {}, .expected = {}});
  requests.push_back({.id = id++, .op = Op::add, .keys = {"key"}, .value = {}, .expected = {}, .amount = -5});
  requests.push_back({.id = id++, .op = Op::compare_set, .keys = {"key"}, .value = "new", .expected = "old"});
  requests.push_back({.id = id++, .op = Op::compare_set, .keys = {"key"}, .value = "new", .expected = {}});
  return requests;
}

std::vector<Answer> all_answers() {
  std::vector<Answer> answers;
  for (auto op = static_cast<std::uint16_t>(Op::set); op <= static_cast<std::uint16_t>(Op::withdraw_last_will); ++op) {
    answers.push_back({.id = op, .op = static_cast<Op>(op), .status = {}, .value = {}, .pairs = {}});
    answers.push_back({.id = op,
                       .op = static_cast<Op>(op),
                       .status = Status(StatusCode::timed_out, "why"),
                       .value = {},
                       .pairs = {}});
  }
  answers.push_back({.id = 100, .op = Op::get, .status = {}, .value = "value", .pairs = {}});
  answers.push_back({.id = 101, .op = Op::add, .status = {}, .value = {}, .number = -3, .pairs = {}});
  answers.push_back({.id = 102, .op = Op::list, .status = {}, .value = {}, .pairs = {{"a", "1"}, {"b", ""}}});
  return answers;
}

template <typename Message, typename Format, typename Parse>
void expect_round_trip(const std::vector<Message>& messages, Format format, Parse parse) {
  for (const Message& message : messages) {
    const Bytes frame = format(message);
    const auto header = parse_frame_header(std::span(frame).first(kHeaderBytes));
    ASSERT_TRUE(header.ok());
    const auto body = std::span(frame).subspan(kHeaderBytes);
    ASSERT_EQ(header->body_bytes, body.size());
    const auto parsed = parse(*header, body);
    ASSERT_TRUE(parsed.ok()) << to_string(message.op);
    EXPECT_EQ(*parsed, message) << to_string(message.op);
    // A message with one byte less or more is rejected.
    for (std::size_t size = 0; size < body.size(); ++size) EXPECT_FALSE(parse(*header, body.first(size)).ok());
    Bytes longer(body.begin(), body.end());
    longer.push_back({});
    EXPECT_FALSE(parse(*header, longer).ok());
  }
}

TEST(StoreProtocol, RequestsSurviveARoundTrip) { expect_round_trip(all_requests(), format_request, parse_request); }

TEST(StoreProtocol, AnswersSurviveARoundTrip) { expect_round_trip(all_answers(), format_answer, parse_answer); }

TEST(StoreProtocol, RefusesUnknownOperationsAndCodes) {
  Bytes frame = format_request(all_requests().front());
  frame.resize(kHeaderBytes);
  frame[4] = std::byte{0};
  EXPECT_FALSE(parse_frame_header(frame).ok());
  frame[4] = std::byte{12};
  EXPECT_FALSE(parse_frame_header(frame).ok());
  frame[4] = std::byte{1};
  EXPECT_TRUE(parse_frame_header(frame).ok());
  frame[6] = std::byte{200};
  EXPECT_FALSE(parse_frame_header(frame).ok());
}

// All frames of a stream that arrives in pieces of `piece` bytes.
std::vector<FrameHeader> frames_of(const Bytes& stream, std::size_t piece, std::size_t max_body, bool* too_large) {
  FrameBuffer buffer(max_body);
  std::vector<FrameHeader> headers;
  for (std::size_t at = 0; at < stream.size(); at += piece) {
    buffer.append(std::span(stream).subspan(at, std::min(piece, stream.size() - at)));
    while (true) {
      const auto frame = buffer.next();
      EXPECT_TRUE(frame.ok());
      if (!frame.ok() || !frame->has_value()) break;
      headers.push_back((*frame)->header);
      *too_large |= (*frame)->too_large;
      EXPECT_EQ((*frame)->body.size(), (*frame)->too_large ? 0 : (*frame)->header.body_bytes);
    }
  }
  EXPECT_EQ(buffer.buffered(), 0U);
  return headers;
}

TEST(FrameBuffer, FindsTheFramesInAnyFragmentation) {
  Bytes stream;
  const auto requests = all_requests();
  for (const Request& request : requests) {
    const Bytes frame = format_request(request);
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{16}, stream.size()}) {
    bool too_large = false;
    const auto headers = frames_of(stream, piece, 1000, &too_large);
    EXPECT_FALSE(too_large);
    ASSERT_EQ(headers.size(), requests.size());
    for (std::size_t i = 0; i < headers.size(); ++i) EXPECT_EQ(headers[i].id, requests[i].id);
  }
}

TEST(FrameBuffer, SkipsTheBodyOfAFrameThatIsTooLarge) {
  Bytes stream =
      format_request({.id = 1, .op = Op::set, .keys = {"key"}, .value = std::string(5000, 'x'), .expected = {}});
  const Bytes next = format_request({.id = 2, .op = Op::remove, .keys = {"key"}, .value = {}, .expected = {}});
  stream.insert(stream.end(), next.begin(), next.end());
  for (const std::size_t piece : {std::size_t{1}, std::size_t{100}, stream.size()}) {
    bool too_large = false;
    const auto headers = frames_of(stream, piece, 1000, &too_large);
    EXPECT_TRUE(too_large);
    ASSERT_EQ(headers.size(), 2U);
    EXPECT_EQ(headers[1].id, 2U);
  }
}

}  // namespace
}  // namespace lockstep::store_protocol
