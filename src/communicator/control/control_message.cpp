#include "communicator/control/control_message.h"

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::uint32_t kMagic = 0x5443'4b4c;  // "LKCT"
constexpr std::uint16_t kVersion = 2;
constexpr std::size_t kMaxReason = kMaxControlPayload - 64;

void put_descriptor(ByteWriter& writer, const OpDescriptor& op) {
  writer.put(op.sequence);
  writer.put(static_cast<std::uint8_t>(op.kind));
  writer.put(static_cast<std::uint8_t>(op.dtype));
  writer.put(static_cast<std::uint8_t>(op.op));
  writer.put(std::uint8_t{0});
  writer.put(op.root);
  writer.put(op.count);
  writer.put(op.digest);
}

OpDescriptor get_descriptor(ByteReader& reader) {
  OpDescriptor op;
  op.sequence = reader.get<std::uint64_t>();
  op.kind = static_cast<OperationKind>(reader.get<std::uint8_t>());
  op.dtype = static_cast<DType>(reader.get<std::uint8_t>());
  op.op = static_cast<ReduceOp>(reader.get<std::uint8_t>());
  reader.get<std::uint8_t>();
  op.root = reader.get<std::int32_t>();
  op.count = reader.get<std::uint64_t>();
  op.digest = reader.get<std::uint64_t>();
  return op;
}

struct PayloadWriter {
  ByteWriter& writer;
  void operator()(const Heartbeat&) const {}
  void operator()(const ProgressChanged&) const {}
  void operator()(const Abort& message) const {
    writer.put(static_cast<std::uint8_t>(message.reason.code()));
    writer.put_string(std::string_view(message.reason.message()).substr(0, kMaxReason));
  }
  void operator()(const ProgressReport& message) const {
    writer.put(static_cast<std::uint32_t>(message.ranks.size()));
    for (const RankReport& report : message.ranks) {
      writer.put(report.rank);
      writer.put(report.version);
      writer.put(report.completed);
      writer.put(static_cast<std::uint8_t>(report.left));
      writer.put(static_cast<std::uint8_t>(report.waiting.has_value()));
      if (report.waiting) put_descriptor(writer, *report.waiting);
    }
  }
  void operator()(const RegionRequest& message) const { put_region(message); }
  void operator()(const RegionGrant& message) const {
    put_region(message);
    writer.put(message.bytes);
  }
  void operator()(const RegionDropped& message) const { put_region(message); }

  template <typename Message>
  void put_region(const Message& message) const {
    writer.put(message.from);
    writer.put(message.to);
    writer.put(message.id);
  }
};

template <typename Message>
Message parse_region(ByteReader& reader) {
  Message message;
  message.from = reader.get<std::int32_t>();
  message.to = reader.get<std::int32_t>();
  message.id = reader.get<std::uint32_t>();
  return message;
}

ControlMessage parse_progress(ByteReader& reader) {
  ProgressReport message;
  const auto count = reader.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
    RankReport report;
    report.rank = reader.get<std::int32_t>();
    report.version = reader.get<std::uint32_t>();
    report.completed = reader.get<std::uint64_t>();
    report.left = reader.get<std::uint8_t>() != 0;
    if (reader.get<std::uint8_t>() != 0) report.waiting = get_descriptor(reader);
    message.ranks.push_back(report);
  }
  return message;
}

ControlMessage parse_abort(ByteReader& reader) {
  const auto code = reader.get<std::uint8_t>();
  const bool known = code > 0 && code <= static_cast<std::uint8_t>(StatusCode::internal);
  return Abort{Status(known ? static_cast<StatusCode>(code) : StatusCode::internal, reader.get_string(kMaxReason))};
}

}  // namespace

Bytes format_control_message(const ControlMessage& message) {
  ByteWriter payload;
  std::visit(PayloadWriter{payload}, message);
  ByteWriter frame;
  frame.put(kMagic);
  frame.put(kVersion);
  frame.put(static_cast<std::uint16_t>(message.index()));
  frame.put(static_cast<std::uint32_t>(payload.bytes().size()));
  frame.put(std::uint32_t{0});
  frame.put_bytes(payload.bytes());
  return frame.take();
}

Result<ControlHeader> parse_control_header(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto magic = reader.get<std::uint32_t>();
  const auto version = reader.get<std::uint16_t>();
  ControlHeader header{.type = reader.get<std::uint16_t>(), .length = reader.get<std::uint32_t>()};
  reader.get<std::uint32_t>();
  if (!reader.ok() || magic != kMagic) {
    return Status(StatusCode::protocol_error, "a peer sent bytes that are not a control message");
  }
  if (version != kVersion) {
    return Status(StatusCode::protocol_error,
                  fmt::format("a peer uses version {} of the control protocol, this process version {}; run the same "
                              "version of Lockstep on all ranks",
                              version, kVersion));
  }
  if (header.type >= std::variant_size_v<ControlMessage> || header.length > kMaxControlPayload) {
    return Status(StatusCode::protocol_error, fmt::format("a control message of unknown type {} or excessive length {}",
                                                          header.type, header.length));
  }
  return header;
}

Result<ControlMessage> parse_control_payload(std::uint16_t type, std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  ControlMessage message;
  switch (type) {
    case 0: message = Heartbeat{}; break;
    case 1: message = parse_abort(reader); break;
    case 2: message = parse_progress(reader); break;
    case 3: message = ProgressChanged{}; break;
    case 4: message = parse_region<RegionRequest>(reader); break;
    case 5: {
      auto grant = parse_region<RegionGrant>(reader);
      grant.bytes = reader.get<std::uint64_t>();
      message = grant;
      break;
    }
    case 6: message = parse_region<RegionDropped>(reader); break;
    default: return Status(StatusCode::protocol_error, fmt::format("a control message of unknown type {}", type));
  }
  if (!reader.complete()) {
    return Status(StatusCode::protocol_error, fmt::format("a control message of type {} is malformed", type));
  }
  return message;
}

}  // namespace lockstep
