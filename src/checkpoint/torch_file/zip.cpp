#include "checkpoint/torch_file/zip.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/printable.h"
#include "checkpoint/torch_file/bytes.h"
#include "checkpoint/torch_file/crc32.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::uint32_t kLocalHeader = 0x04034b50;
constexpr std::uint32_t kCentralHeader = 0x02014b50;
constexpr std::uint32_t kEndOfDirectory = 0x06054b50;
constexpr std::uint32_t kEndOfDirectory64 = 0x06064b50;
constexpr std::uint32_t kLocator64 = 0x07064b50;
constexpr std::size_t kLocalHeaderBytes = 30, kCentralHeaderBytes = 46, kEndBytes = 22, kEnd64Bytes = 56,
                      kLocatorBytes = 20;
constexpr std::size_t kMaxComment = 0xFFFF;
constexpr std::uint32_t kIn64 = 0xFFFFFFFF;  // the value is in the ZIP64 field
constexpr std::uint16_t kZip64Field = 1;
constexpr std::uint16_t kPaddingField = 0x4246;  // "FB", as torch's writer names it
constexpr std::uint64_t kAlignment = 64;

Status damaged_zip(std::string_view what) {
  return {StatusCode::protocol_error, fmt::format("the ZIP archive is damaged: {}", what)};
}

// Reads little-endian numbers; the caller has checked the size.
struct ZipFields {
  std::span<const std::byte> bytes;
  std::uint64_t number(std::size_t at, std::size_t size) const { return as_number(bytes.subspan(at, size)); }
  std::uint16_t u16(std::size_t at) const { return static_cast<std::uint16_t>(number(at, 2)); }
  std::uint32_t u32(std::size_t at) const { return static_cast<std::uint32_t>(number(at, 4)); }
  std::uint64_t u64(std::size_t at) const { return number(at, 8); }
};

struct ZipDirectory {
  std::uint64_t entries = 0, offset = 0, bytes = 0;
};

// Where the end record begins. It ends the file, but for a comment.
std::optional<std::size_t> find_end(std::span<const std::byte> file) {
  if (file.size() < kEndBytes) return std::nullopt;
  const ZipFields fields{file};
  const std::size_t last = file.size() - kEndBytes;
  for (std::size_t at = last;; --at) {
    if (fields.u32(at) == kEndOfDirectory && at + kEndBytes + fields.u16(at + 20) == file.size()) return at;
    if (at == 0 || last - at == kMaxComment) return std::nullopt;
  }
}

Result<ZipDirectory> find_directory(std::span<const std::byte> file) {
  const auto end = find_end(file);
  if (!end) return Status{StatusCode::protocol_error, "this is not a ZIP archive, or its end is missing"};
  const ZipFields fields{file};
  ZipDirectory directory{fields.u16(*end + 10), fields.u32(*end + 16), fields.u32(*end + 12)};
  const bool is_64 = *end >= kLocatorBytes && fields.u32(*end - kLocatorBytes) == kLocator64;
  if (is_64) {
    const std::uint64_t at = fields.u64(*end - kLocatorBytes + 8);
    if (at > file.size() || file.size() - at < kEnd64Bytes || fields.u32(at) != kEndOfDirectory64) {
      return damaged_zip("no ZIP64 end record where its locator points");
    }
    directory = {fields.u64(at + 32), fields.u64(at + 48), fields.u64(at + 40)};
  }
  if (directory.offset > *end || directory.bytes > *end - directory.offset)
    return damaged_zip("no room for its directory");
  if (directory.entries > directory.bytes / kCentralHeaderBytes) return damaged_zip("no room for all entries");
  return directory;
}

struct ZipRecord {
  std::string_view name;
  std::uint64_t bytes = 0, stored_bytes = 0, offset = 0;
  std::uint32_t crc = 0;
};

// The numbers of the ZIP64 field replace those that do not fit into 32 bits, in this order.
Status read_zip64(std::span<const std::byte> extra, ZipRecord& member) {
  const ZipFields fields{extra};
  std::size_t at = 0;
  while (extra.size() - at >= 4) {
    const std::size_t size = fields.u16(at + 2);
    if (extra.size() - at - 4 < size) return damaged_zip("an extra field is too long");
    if (fields.u16(at) == kZip64Field) {
      std::size_t next = at + 4;
      for (std::uint64_t* number : {&member.bytes, &member.stored_bytes, &member.offset}) {
        if (*number != kIn64) continue;
        if (next + 8 > at + 4 + size) return damaged_zip("a ZIP64 field is too short");
        *number = fields.u64(next);
        next += 8;
      }
    }
    at += 4 + size;
  }
  return {};
}

// The data of a member; its local header must agree with the directory.
Result<std::span<const std::byte>> data_of(std::span<const std::byte> file, const ZipRecord& member) {
  const ZipFields fields{file};
  if (member.offset > file.size() || file.size() - member.offset < kLocalHeaderBytes ||
      fields.u32(member.offset) != kLocalHeader) {
    return damaged_zip(fmt::format("no header of member \"{}\"", printable(member.name)));
  }
  const std::size_t name_bytes = fields.u16(member.offset + 26), extra_bytes = fields.u16(member.offset + 28);
  const std::uint64_t begin = member.offset + kLocalHeaderBytes + name_bytes + extra_bytes;
  if (begin > file.size() || file.size() - begin < member.bytes ||
      as_text(file.subspan(member.offset + kLocalHeaderBytes, name_bytes)) != member.name) {
    return damaged_zip(
        fmt::format("member \"{}\" is cut off or has another name in its header", printable(member.name)));
  }
  const auto data = file.subspan(begin, member.bytes);
  if (crc32(data) != member.crc) {
    return damaged_zip(
        fmt::format("the checksum of member \"{}\" is wrong (files that were written after "
                    "torch.serialization.set_crc32_options(False) have none: save them again without it)",
                    printable(member.name)));
  }
  return data;
}

std::uint64_t low(std::uint64_t value) { return std::min<std::uint64_t>(value, kIn64); }

// From the version to the length of the name: the same in both headers.
void append_common(std::string& to, const ZipEntry& entry) {
  append_number(to, 45, 2);     // version that can read ZIP64
  append_number(to, 0x800, 2);  // names are UTF-8
  append_number(to, 0, 2);      // stored
  append_number(to, 0, 2);      // time
  append_number(to, 0x21, 2);   // 1980-01-01: equal weights give equal files
  append_number(to, entry.crc32, 4);
  append_number(to, low(entry.bytes), 4);
  append_number(to, low(entry.bytes), 4);
  append_number(to, entry.name.size(), 2);
}

std::string local_header(const ZipEntry& entry, std::uint64_t offset) {
  std::string extra;
  if (entry.bytes >= kIn64) {
    append_number(extra, kZip64Field, 2);
    append_number(extra, 16, 2);
    append_number(extra, entry.bytes, 8);
    append_number(extra, entry.bytes, 8);
  }
  const std::uint64_t unpadded = offset + kLocalHeaderBytes + entry.name.size() + extra.size() + 4;
  const std::uint64_t padding = (kAlignment - unpadded % kAlignment) % kAlignment;
  append_number(extra, kPaddingField, 2);
  append_number(extra, padding, 2);
  extra.append(padding, 'Z');
  std::string header;
  append_number(header, kLocalHeader, 4);
  append_common(header, entry);
  append_number(header, extra.size(), 2);
  return header + entry.name + extra;
}

std::string central_header(const ZipEntry& entry, std::uint64_t offset) {
  std::string extra;
  if (entry.bytes >= kIn64 || offset >= kIn64) {
    std::string numbers;
    if (entry.bytes >= kIn64) {
      append_number(numbers, entry.bytes, 8);
      append_number(numbers, entry.bytes, 8);
    }
    if (offset >= kIn64) append_number(numbers, offset, 8);
    append_number(extra, kZip64Field, 2);
    append_number(extra, numbers.size(), 2);
    extra += numbers;
  }
  std::string header;
  append_number(header, kCentralHeader, 4);
  append_number(header, 45, 2);  // version of the writer
  append_common(header, entry);
  append_number(header, extra.size(), 2);
  append_number(header, 0, 2 + 2 + 2);  // comment, disk, attributes
  append_number(header, 0, 4);
  append_number(header, low(offset), 4);
  return header + entry.name + extra;
}

}  // namespace

Result<ZipMembers> parse_zip(std::span<const std::byte> file) {
  const auto directory = find_directory(file);
  if (!directory.ok()) return directory.status();
  const auto records = file.subspan(directory->offset, directory->bytes);
  const ZipFields fields{records};
  ZipMembers members;
  std::size_t at = 0;
  std::uint64_t left = file.size();  // members do not overlap, so checksums cost no more than the file's size
  for (std::uint64_t i = 0; i < directory->entries; ++i) {
    if (records.size() - at < kCentralHeaderBytes || fields.u32(at) != kCentralHeader) {
      return damaged_zip("its directory ends early");
    }
    const std::size_t name_bytes = fields.u16(at + 28), extra_bytes = fields.u16(at + 30);
    const std::size_t all = kCentralHeaderBytes + name_bytes + extra_bytes + fields.u16(at + 32);
    if (records.size() - at < all) return damaged_zip("its directory ends early");
    ZipRecord member{.name = as_text(records.subspan(at + kCentralHeaderBytes, name_bytes)),
                     .bytes = fields.u32(at + 24),
                     .stored_bytes = fields.u32(at + 20),
                     .offset = fields.u32(at + 42),
                     .crc = fields.u32(at + 16)};
    if (Status status = read_zip64(records.subspan(at + kCentralHeaderBytes + name_bytes, extra_bytes), member);
        !status.ok()) {
      return status;
    }
    if ((fields.u16(at + 8) & 1) != 0 || fields.u16(at + 10) != 0 || member.bytes != member.stored_bytes) {
      return Status{StatusCode::protocol_error,
                    fmt::format("member \"{}\" is compressed or encrypted: torch.save does not write such archives",
                                printable(member.name))};
    }
    if (member.bytes > left) return damaged_zip("its members overlap");
    left -= member.bytes;
    auto data = data_of(file, member);
    if (!data.ok()) return data.status();
    if (!members.emplace(member.name, *data).second) {
      return damaged_zip(fmt::format("two members are called \"{}\"", printable(member.name)));
    }
    at += all;
  }
  return members;
}

ZipLayout lay_out_zip(std::span<const ZipEntry> entries) {
  ZipLayout layout;
  std::string directory;
  std::uint64_t offset = 0;
  for (const ZipEntry& entry : entries) {
    layout.heads.push_back(local_header(entry, offset));
    directory += central_header(entry, offset);
    offset += layout.heads.back().size() + entry.bytes;
  }
  std::string& tail = layout.tail;
  tail = directory;
  // Always, as torch does: readers know it, and there is one case less.
  append_number(tail, kEndOfDirectory64, 4);
  append_number(tail, kEnd64Bytes - 12, 8);
  append_number(tail, 45, 2);
  append_number(tail, 45, 2);
  append_number(tail, 0, 4 + 4);
  append_number(tail, entries.size(), 8);
  append_number(tail, entries.size(), 8);
  append_number(tail, directory.size(), 8);
  append_number(tail, offset, 8);
  append_number(tail, kLocator64, 4);
  append_number(tail, 0, 4);
  append_number(tail, offset + directory.size(), 8);
  append_number(tail, 1, 4);
  append_number(tail, kEndOfDirectory, 4);
  append_number(tail, 0, 2 + 2);
  append_number(tail, std::min<std::size_t>(entries.size(), 0xFFFF), 2);
  append_number(tail, std::min<std::size_t>(entries.size(), 0xFFFF), 2);
  append_number(tail, low(directory.size()), 4);
  append_number(tail, low(offset), 4);
  append_number(tail, 0, 2);
  return layout;
}

}  // namespace lockstep::checkpoint
