#include "store/tcp/store_protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace lockstep::store_protocol {
namespace {

// Strings inside a frame are bounded by the frame, whose length was checked before it was read.
constexpr std::size_t kAnyString = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kKeptBytes = std::size_t{1} << 20;  // a larger buffer is freed once it is empty
constexpr std::size_t kLengthBytes = sizeof(std::uint32_t);

Status malformed(const char* what, const FrameHeader& header) {
  return Status(StatusCode::protocol_error, fmt::format("malformed store {} (operation {}, {} bytes)", what,
                                                        static_cast<unsigned>(header.op), header.body_bytes));
}

Bytes with_header(std::uint64_t id, Op op, StatusCode status, std::span<const std::byte> body) {
  ByteWriter writer;
  writer.put(static_cast<std::uint32_t>(body.size()));
  writer.put(static_cast<std::uint16_t>(op));
  writer.put(static_cast<std::uint16_t>(status));
  writer.put(id);
  writer.put_bytes(body);
  return writer.take();
}

void put_keys(ByteWriter& writer, const std::vector<std::string>& keys) {
  writer.put(static_cast<std::uint32_t>(keys.size()));
  for (const std::string& key : keys) writer.put_string(key);
}

// Stops at the first missing key, so that a large count alone allocates nothing.
std::vector<std::string> get_keys(ByteReader& reader) {
  std::vector<std::string> keys;
  const auto count = reader.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) keys.push_back(reader.get_string(kAnyString));
  return keys;
}

}  // namespace

const char* to_string(Op op) {
  switch (op) {
    case Op::set: return "set";
    case Op::get: return "get";
    case Op::wait: return "wait";
    case Op::add: return "add";
    case Op::compare_set: return "compare_set";
    case Op::check: return "check";
    case Op::remove: return "remove";
    case Op::list: return "list";
    case Op::append: return "append";
    case Op::set_last_will: return "set_last_will";
    case Op::withdraw_last_will: return "withdraw_last_will";
  }
  return "unknown";
}

Result<FrameHeader> parse_frame_header(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  FrameHeader header;
  header.body_bytes = reader.get<std::uint32_t>();
  const auto op = reader.get<std::uint16_t>();
  const auto status = reader.get<std::uint16_t>();
  header.id = reader.get<std::uint64_t>();
  if (!reader.complete() || op < static_cast<unsigned>(Op::set) || op > static_cast<unsigned>(Op::withdraw_last_will) ||
      status > static_cast<unsigned>(StatusCode::internal)) {
    return Status(StatusCode::protocol_error,
                  fmt::format("malformed store header (operation {}, status {})", op, status));
  }
  header.op = static_cast<Op>(op);
  header.status = static_cast<StatusCode>(status);
  return header;
}

Bytes format_request(const Request& request) {
  ByteWriter writer;
  switch (request.op) {
    case Op::set:
    case Op::append:
    case Op::set_last_will:
      writer.put_string(request.keys.front());
      writer.put_string(request.value);
      break;
    case Op::get:
      writer.put(request.timeout_us);
      writer.put_string(request.keys.front());
      break;
    case Op::wait:
      writer.put(request.timeout_us);
      put_keys(writer, request.keys);
      break;
    case Op::check: put_keys(writer, request.keys); break;
    case Op::add:
      writer.put_string(request.keys.front());
      writer.put(request.amount);
      break;
    case Op::compare_set:
      writer.put_string(request.keys.front());
      writer.put(static_cast<std::uint8_t>(request.expected.has_value()));
      if (request.expected.has_value()) writer.put_string(*request.expected);
      writer.put_string(request.value);
      break;
    case Op::remove:
    case Op::list:
    case Op::withdraw_last_will: writer.put_string(request.keys.front()); break;
  }
  return with_header(request.id, request.op, StatusCode::ok, writer.bytes());
}

Result<Request> parse_request(const FrameHeader& header, std::span<const std::byte> body) {
  ByteReader reader(body);
  Request request;
  request.id = header.id;
  request.op = header.op;
  const auto get_key = [&] { request.keys.push_back(reader.get_string(kAnyString)); };
  switch (header.op) {
    case Op::set:
    case Op::append:
    case Op::set_last_will:
      get_key();
      request.value = reader.get_string(kAnyString);
      break;
    case Op::get:
      request.timeout_us = reader.get<std::uint64_t>();
      get_key();
      break;
    case Op::wait:
      request.timeout_us = reader.get<std::uint64_t>();
      request.keys = get_keys(reader);
      break;
    case Op::check: request.keys = get_keys(reader); break;
    case Op::add:
      get_key();
      request.amount = reader.get<std::int64_t>();
      break;
    case Op::compare_set: {
      get_key();
      const auto has_expected = reader.get<std::uint8_t>();
      if (has_expected > 1) return malformed("request", header);
      if (has_expected == 1) request.expected = reader.get_string(kAnyString);
      request.value = reader.get_string(kAnyString);
      break;
    }
    case Op::remove:
    case Op::list:
    case Op::withdraw_last_will: get_key(); break;
  }
  if (!reader.complete() || header.status != StatusCode::ok) return malformed("request", header);
  return request;
}

Bytes format_answer(const Answer& answer) {
  ByteWriter writer;
  if (!answer.status.ok()) {
    writer.put_string(answer.status.message());
    return with_header(answer.id, answer.op, answer.status.code(), writer.bytes());
  }
  switch (answer.op) {
    case Op::set:
    case Op::wait:
    case Op::withdraw_last_will: break;
    case Op::get:
    case Op::compare_set: writer.put_string(answer.value); break;
    case Op::add:
    case Op::append:
    case Op::check:
    case Op::remove:
    case Op::set_last_will: writer.put(answer.number); break;
    case Op::list:
      writer.put(static_cast<std::uint32_t>(answer.pairs.size()));
      for (const auto& [key, value] : answer.pairs) {
        writer.put_string(key);
        writer.put_string(value);
      }
      break;
  }
  return with_header(answer.id, answer.op, StatusCode::ok, writer.bytes());
}

Result<Answer> parse_answer(const FrameHeader& header, std::span<const std::byte> body) {
  ByteReader reader(body);
  Answer answer;
  answer.id = header.id;
  answer.op = header.op;
  if (header.status != StatusCode::ok) {
    answer.status = Status(header.status, reader.get_string(kAnyString));
    if (!reader.complete()) return malformed("answer", header);
    return answer;
  }
  switch (header.op) {
    case Op::set:
    case Op::wait:
    case Op::withdraw_last_will: break;
    case Op::get:
    case Op::compare_set: answer.value = reader.get_string(kAnyString); break;
    case Op::add:
    case Op::append:
    case Op::check:
    case Op::remove:
    case Op::set_last_will: answer.number = reader.get<std::int64_t>(); break;
    case Op::list: {
      const auto count = reader.get<std::uint32_t>();
      for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
        std::string key = reader.get_string(kAnyString);
        answer.pairs[std::move(key)] = reader.get_string(kAnyString);
      }
      break;
    }
  }
  if (!reader.complete()) return malformed("answer", header);
  return answer;
}

std::size_t max_request_bytes(const StoreLimits& limits) {
  // compare_set has two values; a wait may have many keys, for which the size of a value is enough.
  const std::size_t bytes = limits.max_key_bytes + 2 * limits.max_value_bytes + 4 * kLengthBytes + 1024;
  return std::min<std::size_t>(bytes, std::numeric_limits<std::uint32_t>::max());
}

void FrameBuffer::append(std::span<const std::byte> bytes) {
  // Frames are returned as views, so consumed bytes are removed only when new ones arrive.
  if (buffered() == 0 && bytes_.capacity() > kKeptBytes) {
    bytes_ = Bytes();
  } else {
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(consumed_));
  }
  consumed_ = 0;
  const std::size_t dropped = std::min(to_drop_, bytes.size());
  to_drop_ -= dropped;
  bytes_.insert(bytes_.end(), bytes.begin() + static_cast<std::ptrdiff_t>(dropped), bytes.end());
}

Result<std::optional<FrameBuffer::Frame>> FrameBuffer::next() {
  const auto rest = std::span<const std::byte>(bytes_).subspan(consumed_);
  if (rest.size() < kHeaderBytes) return std::optional<Frame>();
  const auto header = parse_frame_header(rest.first(kHeaderBytes));
  if (!header.ok()) return header.status();
  const auto arrived = rest.subspan(kHeaderBytes);
  if (header->body_bytes > max_body_bytes_) {
    const std::size_t dropped = std::min<std::size_t>(arrived.size(), header->body_bytes);
    to_drop_ = header->body_bytes - dropped;
    consumed_ += kHeaderBytes + dropped;
    return std::optional<Frame>(Frame{*header, {}, true});
  }
  if (arrived.size() < header->body_bytes) return std::optional<Frame>();
  consumed_ += kHeaderBytes + header->body_bytes;
  return std::optional<Frame>(Frame{*header, arrived.first(header->body_bytes), false});
}

}  // namespace lockstep::store_protocol
