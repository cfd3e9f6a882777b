// The protocol between TcpStore and TcpStoreServer: docs/wire_format.md, "Store".
//
// After the handshake the client sends requests and the server answers, in any order, with the
// request's id. Pure functions and one buffer; parsers accept any bytes, check lengths before they
// allocate, and return protocol_error for what no correct peer sends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/codec.h"
#include "lockstep/base/status.h"
#include "lockstep/store/store.h"

namespace lockstep::store_protocol {

enum class Op : std::uint16_t {
  set = 1,
  get = 2,
  wait = 3,
  add = 4,
  compare_set = 5,
  check = 6,
  remove = 7,
  list = 8,
  append = 9,
  set_last_will = 10,
  withdraw_last_will = 11,
};

// "set", "compare_set", ...; never null.
const char* to_string(Op op);

inline constexpr std::size_t kHeaderBytes = 16;
// No answer is larger; a list or value that would be is refused with resource_exhausted.
inline constexpr std::size_t kMaxAnswerBytes = std::size_t{256} << 20;

struct FrameHeader {
  std::uint32_t body_bytes = 0;
  Op op = Op::set;
  StatusCode status = StatusCode::ok;  // of an answer; ok in requests
  std::uint64_t id = 0;
};
// Needs exactly kHeaderBytes; refuses unknown operations and status codes.
Result<FrameHeader> parse_frame_header(std::span<const std::byte> bytes);

struct Request {
  std::uint64_t id = 0;
  Op op = Op::set;
  std::vector<std::string> keys;        // wait, check: any number; otherwise one (list: the prefix)
  std::string value;                    // set, append, set_last_will; compare_set: desired
  std::optional<std::string> expected;  // compare_set
  std::int64_t amount = 0;              // add
  std::uint64_t timeout_us = 0;         // get, wait

  friend bool operator==(const Request&, const Request&) = default;
};

struct Answer {
  std::uint64_t id = 0;
  Op op = Op::set;
  Status status;
  std::string value;                         // get, compare_set
  std::int64_t number = 0;                   // add: the sum; append: the length; check, remove, set_last_will: 0 or 1
  std::map<std::string, std::string> pairs;  // list

  friend bool operator==(const Answer&, const Answer&) = default;
};

// Complete frames, including the header. The caller ensures that the body's size fits into 32 bits.
Bytes format_request(const Request& request);
Bytes format_answer(const Answer& answer);
Result<Request> parse_request(const FrameHeader& header, std::span<const std::byte> body);
Result<Answer> parse_answer(const FrameHeader& header, std::span<const std::byte> body);

// The largest request body that a server with these limits accepts.
std::size_t max_request_bytes(const StoreLimits& limits);

// Collects bytes as they arrive and returns complete frames. Holds no more than was received: an announced
// length reserves nothing, and the body of a frame that is too large is dropped as it arrives.
class FrameBuffer {
 public:
  explicit FrameBuffer(std::size_t max_body_bytes) : max_body_bytes_(max_body_bytes) {}

  void append(std::span<const std::byte> bytes);
  struct Frame {
    FrameHeader header;
    std::span<const std::byte> body;  // valid until the next call of append or next
    bool too_large = false;           // the body exceeds the maximum and was dropped
  };
  // nullopt: more bytes are needed. After an error the stream is lost.
  Result<std::optional<Frame>> next();
  std::size_t buffered() const { return bytes_.size() - consumed_; }

 private:
  const std::size_t max_body_bytes_;
  Bytes bytes_;
  std::size_t consumed_ = 0;
  std::size_t to_drop_ = 0;  // remaining bytes of a body that is too large
};

}  // namespace lockstep::store_protocol
