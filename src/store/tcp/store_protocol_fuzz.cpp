// The store's frames, requests and answers: what is parsed must survive a round trip.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "store/tcp/store_protocol.h"

namespace {

using namespace lockstep;
using namespace lockstep::store_protocol;

constexpr std::size_t kMaxBody = 4096;

void require(bool condition) {
  if (!condition) __builtin_trap();
}

void check_frame(const FrameBuffer::Frame& frame) {
  if (frame.too_large) {
    require(frame.body.empty() && frame.header.body_bytes > kMaxBody);
    return;
  }
  if (const auto request = parse_request(frame.header, frame.body); request.ok()) {
    const Bytes again = format_request(*request);
    require(std::ranges::equal(std::span(again).subspan(kHeaderBytes), frame.body));
  }
  // An answer's list may contain a key twice, so only its meaning is compared.
  if (const auto answer = parse_answer(frame.header, frame.body); answer.ok()) {
    const Bytes again = format_answer(*answer);
    const auto header = parse_frame_header(std::span(again).first(kHeaderBytes));
    require(header.ok());
    const auto parsed = parse_answer(*header, std::span(again).subspan(kHeaderBytes));
    require(parsed.ok() && *parsed == *answer);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  // The first byte determines the pieces in which the rest arrives.
  const std::size_t piece = size == 0 ? 1 : 1 + std::to_integer<std::size_t>(bytes.front());
  FrameBuffer buffer(kMaxBody);
  for (std::size_t at = std::min<std::size_t>(1, size); at < size; at += piece) {
    buffer.append(bytes.subspan(at, std::min(piece, size - at)));
    while (true) {
      const auto frame = buffer.next();
      if (!frame.ok()) return 0;
      if (!frame->has_value()) break;
      check_frame(**frame);
    }
  }
  return 0;
}
