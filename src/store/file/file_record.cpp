#include "store/file/file_record.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <limits>

namespace lockstep::file_record {
namespace {

constexpr std::size_t kRecordHeaderBytes = 12;
constexpr std::array<char, 8> kMagic = {'L', 'S', 'K', 'P', 'F', 'I', 'L', 'E'};
constexpr std::size_t kAnyString = std::numeric_limits<std::uint32_t>::max();  // bounded by the record

}  // namespace

Bytes format_file_header(const FileId& id) {
  ByteWriter writer;
  writer.put_bytes(std::as_bytes(std::span(kMagic)));
  writer.put(kFileVersion);
  writer.put_bytes(id);
  return writer.take();
}

FileId parse_file_id(std::span<const std::byte> header) {
  FileId id{};
  std::copy_n(header.begin() + kFileHeaderBytes - id.size(), id.size(), id.begin());
  return id;
}

Status check_file_header(std::span<const std::byte> bytes) {
  const Bytes expected = format_file_header({});
  const std::size_t fixed = std::min(bytes.size(), kFileHeaderBytes - FileId().size());
  if (bytes.size() <= kFileHeaderBytes &&
      std::equal(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(fixed), expected.begin())) {
    return {};
  }
  const auto magic = std::as_bytes(std::span(kMagic));
  if (bytes.size() == kFileHeaderBytes && std::equal(magic.begin(), magic.end(), bytes.begin())) {
    ByteReader reader(bytes.subspan(magic.size()));
    return Status(
        StatusCode::protocol_error,
        fmt::format("the file has format version {}, but this process reads version {}; run the same version of "
                    "Lockstep everywhere, or use a new file",
                    reader.get<std::uint16_t>(), kFileVersion));
  }
  return Status(StatusCode::protocol_error, "the file is not a store's file and was left unchanged; use another path");
}

Bytes format_record(const Record& record) {
  ByteWriter body;
  body.put(static_cast<std::uint8_t>(record.change));
  body.put_string(record.key);
  body.put_string(record.value);
  ByteWriter writer;
  writer.put(static_cast<std::uint32_t>(body.bytes().size()));
  writer.put(static_cast<std::uint64_t>(XXH64(body.bytes().data(), body.bytes().size(), 0)));
  writer.put_bytes(body.bytes());
  return writer.take();
}

std::optional<ParsedRecord> parse_record(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto body_bytes = reader.get<std::uint32_t>();
  const auto checksum = reader.get<std::uint64_t>();
  const auto body = reader.take(body_bytes);
  if (!reader.ok() || XXH64(body.data(), body.size(), 0) != checksum) return std::nullopt;
  ByteReader fields(body);
  ParsedRecord parsed;
  const auto change = fields.get<std::uint8_t>();
  parsed.record.key = fields.get_string(kAnyString);
  parsed.record.value = fields.get_string(kAnyString);
  if (!fields.complete() || change < static_cast<unsigned>(Change::set) ||
      change > static_cast<unsigned>(Change::append)) {
    return std::nullopt;
  }
  parsed.record.change = static_cast<Change>(change);
  parsed.bytes = kRecordHeaderBytes + body_bytes;
  return parsed;
}

Status apply(const Record& record, StoreState& state) {
  switch (record.change) {
    case Change::set: return state.set(record.key, record.value);
    case Change::append: return state.append(record.key, record.value).status();
    case Change::remove: state.remove(record.key); return {};
  }
  return {};
}

}  // namespace lockstep::file_record
