#include "rendezvous/member_record.h"

#include <fmt/format.h>

#include <span>

#include "base/codec.h"

namespace lockstep {
namespace {

constexpr std::uint32_t kMagic = 0x5652534C;  // "LSRV"
constexpr std::uint16_t kVersion = 2;
constexpr std::size_t kMaxTextBytes = 255;
constexpr std::size_t kMaxMessageBytes = std::size_t{64} << 10;
constexpr std::size_t kMaxValueBytes = std::size_t{64} << 10;
constexpr std::size_t kMaxCount = 65536;

enum class Kind : std::uint16_t { member = 1, invitation = 2, failure = 3, values = 4, ranks = 5 };

void put_header(ByteWriter& writer, Kind kind) {
  writer.put(kMagic);
  writer.put(kVersion);
  writer.put(static_cast<std::uint16_t>(kind));
}

std::string finish(const ByteWriter& writer) {
  return {reinterpret_cast<const char*>(writer.bytes().data()), writer.bytes().size()};
}

ByteReader reader_of(std::string_view bytes) {
  return ByteReader(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

Status take_header(ByteReader& reader, Kind kind) {
  const auto magic = reader.get<std::uint32_t>();
  const auto version = reader.get<std::uint16_t>();
  const auto found = reader.get<std::uint16_t>();
  if (!reader.ok() || magic != kMagic) {
    return Status(StatusCode::protocol_error, "not a rendezvous record of Lockstep");
  }
  if (version != kVersion) {
    return Status(StatusCode::protocol_error,
                  fmt::format("a rendezvous record of version {}, but this process has version {}; run the same "
                              "version of Lockstep on all ranks",
                              version, kVersion));
  }
  if (found != static_cast<std::uint16_t>(kind)) {
    return Status(StatusCode::protocol_error, fmt::format("a rendezvous record of kind {}, but kind {} was expected",
                                                          found, static_cast<unsigned>(kind)));
  }
  return {};
}

Status malformed() { return Status(StatusCode::protocol_error, "a malformed rendezvous record"); }

// Text longer than a reader accepts is truncated, so that a record can always be read.
void put_text(ByteWriter& writer, std::string_view text, std::size_t limit = kMaxTextBytes) {
  writer.put_string(text.substr(0, limit));
}

void put_member(ByteWriter& writer, const MemberRecord& record) {
  put_header(writer, Kind::member);
  put_text(writer, record.nonce);
  writer.put(record.rank);
  writer.put(record.world_size);
  writer.put(record.pid);
  for (const auto* text : {&record.host, &record.process_space, &record.network_space, &record.host_id,
                           &record.unix_name, &record.machine}) {
    put_text(writer, *text);
  }
  writer.put(record.processors);
}

Result<MemberRecord> take_member(ByteReader& reader) {
  LOCKSTEP_RETURN_IF_ERROR(take_header(reader, Kind::member));
  MemberRecord record;
  record.nonce = reader.get_string(kMaxTextBytes);
  record.rank = reader.get<std::int32_t>();
  record.world_size = reader.get<std::int32_t>();
  record.pid = reader.get<std::int64_t>();
  for (auto* text : {&record.host, &record.process_space, &record.network_space, &record.host_id, &record.unix_name,
                     &record.machine}) {
    *text = reader.get_string(kMaxTextBytes);
  }
  record.processors = reader.get<std::int32_t>();
  if (!reader.ok() || record.nonce.empty() || record.world_size < 1 || record.rank < 0 ||
      record.rank >= record.world_size || record.processors < 0) {
    return malformed();
  }
  return record;
}

}  // namespace

std::string MemberRecord::describe() const { return fmt::format("rank {} (host {}, pid {})", rank, host, pid); }

std::string format(const MemberRecord& record) {
  ByteWriter writer;
  put_member(writer, record);
  return finish(writer);
}

std::string format(const Invitation& invitation) {
  ByteWriter writer;
  put_header(writer, Kind::invitation);
  put_text(writer, invitation.session);
  put_member(writer, invitation.leader);
  return finish(writer);
}

std::string format(const FailureRecord& failure) {
  ByteWriter writer;
  put_header(writer, Kind::failure);
  writer.put(static_cast<std::uint8_t>(failure.status.code()));
  writer.put(failure.gone_rank);
  put_text(writer, failure.status.message(), kMaxMessageBytes);
  return finish(writer);
}

std::string format(const std::vector<std::string>& values) {
  ByteWriter writer;
  put_header(writer, Kind::values);
  writer.put(static_cast<std::uint32_t>(values.size()));
  for (const auto& value : values) put_text(writer, value, kMaxValueBytes);
  return finish(writer);
}

std::string format(const std::vector<std::int32_t>& ranks) {
  ByteWriter writer;
  put_header(writer, Kind::ranks);
  writer.put(static_cast<std::uint32_t>(ranks.size()));
  for (const auto rank : ranks) writer.put(rank);
  return finish(writer);
}

Result<std::vector<MemberRecord>> parse_member_records(std::string_view bytes) {
  auto reader = reader_of(bytes);
  std::vector<MemberRecord> records;
  while (reader.remaining() > 0) {
    auto record = take_member(reader);
    if (!record.ok()) return record.status();
    records.push_back(*std::move(record));
  }
  return records;
}

Result<Invitation> parse_invitation(std::string_view bytes) {
  auto reader = reader_of(bytes);
  LOCKSTEP_RETURN_IF_ERROR(take_header(reader, Kind::invitation));
  Invitation invitation;
  invitation.session = reader.get_string(kMaxTextBytes);
  auto leader = take_member(reader);
  if (!leader.ok()) return leader.status();
  invitation.leader = *std::move(leader);
  if (!reader.complete() || invitation.session.empty()) return malformed();
  return invitation;
}

Result<FailureRecord> parse_failure(std::string_view bytes) {
  auto reader = reader_of(bytes);
  LOCKSTEP_RETURN_IF_ERROR(take_header(reader, Kind::failure));
  const auto code = reader.get<std::uint8_t>();
  FailureRecord failure;
  failure.gone_rank = reader.get<std::int32_t>();
  auto message = reader.get_string(kMaxMessageBytes);
  if (!reader.complete() || code == 0 || code > static_cast<std::uint8_t>(StatusCode::internal)) return malformed();
  failure.status = Status(static_cast<StatusCode>(code), std::move(message));
  return failure;
}

Result<std::vector<std::string>> parse_values(std::string_view bytes) {
  auto reader = reader_of(bytes);
  LOCKSTEP_RETURN_IF_ERROR(take_header(reader, Kind::values));
  const auto count = reader.get<std::uint32_t>();
  std::vector<std::string> values;
  // Each value has at least its length: a count that cannot be true allocates nothing.
  if (count > kMaxCount || count > reader.remaining() / sizeof(std::uint32_t)) return malformed();
  values.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) values.push_back(reader.get_string(kMaxValueBytes));
  if (!reader.complete()) return malformed();
  return values;
}

Result<std::vector<std::int32_t>> parse_ranks(std::string_view bytes) {
  auto reader = reader_of(bytes);
  LOCKSTEP_RETURN_IF_ERROR(take_header(reader, Kind::ranks));
  const auto count = reader.get<std::uint32_t>();
  if (count > kMaxCount || count > reader.remaining() / sizeof(std::int32_t)) return malformed();
  std::vector<std::int32_t> ranks(count);
  for (auto& rank : ranks) rank = reader.get<std::int32_t>();
  if (!reader.complete()) return malformed();
  return ranks;
}

}  // namespace lockstep
