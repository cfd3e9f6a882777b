#include "checkpoint/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/codec.h"
#include "base/printable.h"
#include "checkpoint/safetensors_header.h"

namespace lockstep::checkpoint {
namespace {

struct DtypeRow {
  Dtype dtype;
  const char* name;
  std::size_t bytes;
};
constexpr std::array kDtypes{
    DtypeRow{Dtype::boolean, "BOOL", 1},    DtypeRow{Dtype::u8, "U8", 1},           DtypeRow{Dtype::i8, "I8", 1},
    DtypeRow{Dtype::f8_e4m3, "F8_E4M3", 1}, DtypeRow{Dtype::f8_e5m2, "F8_E5M2", 1}, DtypeRow{Dtype::i16, "I16", 2},
    DtypeRow{Dtype::u16, "U16", 2},         DtypeRow{Dtype::f16, "F16", 2},         DtypeRow{Dtype::bf16, "BF16", 2},
    DtypeRow{Dtype::i32, "I32", 4},         DtypeRow{Dtype::u32, "U32", 4},         DtypeRow{Dtype::f32, "F32", 4},
    DtypeRow{Dtype::i64, "I64", 8},         DtypeRow{Dtype::u64, "U64", 8},         DtypeRow{Dtype::f64, "F64", 8},
    DtypeRow{Dtype::c64, "C64", 8},
};
const DtypeRow& row(Dtype dtype) { return kDtypes[static_cast<std::size_t>(dtype)]; }

// Nothing if the number does not fit or a size is negative.
std::optional<std::uint64_t> byte_count(const TensorInfo& info) {
  std::uint64_t bytes = element_bytes(info.dtype);
  for (const std::int64_t size : info.shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes)) return std::nullopt;
  }
  return bytes;
}

Status malformed(std::string why) { return Status(StatusCode::protocol_error, std::move(why)); }
Status refused(std::string why) { return Status(StatusCode::invalid_argument, std::move(why)); }

// Entries that are sorted by their offsets follow each other without gap or overlap. Returns the end of the last one.
Result<std::uint64_t> check_coverage(const std::vector<SafetensorsHead::Entry>& entries) {
  std::uint64_t covered = 0;
  for (const SafetensorsHead::Entry& entry : entries) {
    const std::string name = printable(entry.info.name);
    const auto bytes = byte_count(entry.info);
    if (!bytes || entry.end < entry.begin || entry.end - entry.begin != *bytes) {
      return malformed(fmt::format("tensor \"{}\" is {}, but the bytes {} to {} belong to it", name,
                                   entry.info.describe(), entry.begin, entry.end));
    }
    if (entry.begin != covered) {
      return malformed(fmt::format("tensor \"{}\" begins at byte {} of the data, {} the one before it", name,
                                   entry.begin, entry.begin < covered ? "inside" : "with a gap after"));
    }
    covered = entry.end;
  }
  return covered;
}

// The bytes of the header, which the size at the beginning of `file` announces.
Result<std::string_view> find_header(std::span<const std::byte> file) {
  ByteReader reader(file);
  const auto bytes = reader.get<std::uint64_t>();
  if (!reader.ok())
    return malformed(fmt::format("it has only {} bytes; a safetensors file has at least 8", file.size()));
  if (bytes > kMaxSafetensorsHeader) {
    return malformed(
        fmt::format("its header would have {} bytes; more than {} are not allowed", bytes, kMaxSafetensorsHeader));
  }
  const auto raw = reader.take(bytes);
  if (!reader.ok()) {
    return malformed(fmt::format("its header has {} bytes, but the file ends after {}", bytes, file.size()));
  }
  return std::string_view(reinterpret_cast<const char*>(raw.data()), raw.size());
}

Result<SafetensorsHead> parse_header(std::string_view header) {
  auto head = parse_safetensors_header(header);
  if (!head.ok()) return head;
  // An empty tensor lies at the border of two others: before the one that begins there.
  std::ranges::sort(head->entries, {},
                    [](const SafetensorsHead::Entry& entry) { return std::pair(entry.begin, entry.end); });
  const auto covered = check_coverage(head->entries);
  if (!covered.ok()) return covered.status();
  head->data_bytes = *covered;
  return head;
}

Result<std::string> format_header(std::span<const TensorInfo> tensors, const SafetensorsLayout& layout,
                                  const Metadata& metadata) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const std::size_t index : layout.order) {
    const TensorInfo& info = tensors[index];
    if (header.contains(info.name) || info.name == "__metadata__") {
      return refused(fmt::format("two tensors cannot both be named \"{}\" in one file", printable(info.name)));
    }
    const std::uint64_t end = offset + *byte_count(info);
    header[info.name] = {{"dtype", to_string(info.dtype)}, {"shape", info.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  try {
    return header.dump();
  } catch (const nlohmann::json::type_error&) {
    return refused("the name of a tensor is not UTF-8, which the format needs");
  }
}

}  // namespace

const char* to_string(Dtype dtype) { return row(dtype).name; }
std::size_t element_bytes(Dtype dtype) { return row(dtype).bytes; }

std::optional<Dtype> parse_dtype(std::string_view name) {
  const auto found = std::ranges::find_if(kDtypes, [&](const DtypeRow& entry) { return entry.name == name; });
  if (found == kDtypes.end()) return std::nullopt;
  return found->dtype;
}

std::string TensorInfo::describe() const { return fmt::format("{} [{}]", to_string(dtype), fmt::join(shape, ", ")); }

Result<SafetensorsLayout> lay_out_safetensors(std::span<const TensorInfo> tensors, const Metadata& metadata) {
  SafetensorsLayout layout;
  for (const TensorInfo& info : tensors) {
    const auto bytes = byte_count(info);
    if (!bytes || __builtin_add_overflow(layout.data_bytes, *bytes, &layout.data_bytes)) {
      return refused(
          fmt::format("tensor \"{}\" with {} is larger than a file can be", printable(info.name), info.describe()));
    }
  }
  layout.order.resize(tensors.size());
  std::iota(layout.order.begin(), layout.order.end(), std::size_t{0});
  std::ranges::sort(layout.order, [&](std::size_t a, std::size_t b) {
    const std::size_t bytes_a = element_bytes(tensors[a].dtype), bytes_b = element_bytes(tensors[b].dtype);
    return bytes_a != bytes_b ? bytes_a > bytes_b : tensors[a].name < tensors[b].name;
  });
  auto header = format_header(tensors, layout, metadata);
  if (!header.ok()) return header.status();
  constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
  const std::size_t used = (kLengthBytes + header->size()) % kDataAlignment;
  header->append((kDataAlignment - used) % kDataAlignment, ' ');
  if (header->size() > kMaxSafetensorsHeader) {
    return refused(fmt::format("{} tensors need a header of {} bytes; the format allows {}", tensors.size(),
                               header->size(), kMaxSafetensorsHeader));
  }
  ByteWriter length;
  length.put(static_cast<std::uint64_t>(header->size()));
  layout.head.assign(reinterpret_cast<const char*>(length.bytes().data()), kLengthBytes);
  layout.head += *header;
  return layout;
}

Result<SafetensorsHead> parse_safetensors_head(std::span<const std::byte> head) {
  const auto header = find_header(head);
  if (!header.ok()) return header.status();
  const std::size_t used = sizeof(std::uint64_t) + header->size();
  if (used != head.size()) return malformed(fmt::format("{} bytes follow its header", head.size() - used));
  return parse_header(*header);
}

Result<Safetensors> parse_safetensors(std::span<const std::byte> file) {
  const auto header = find_header(file);
  if (!header.ok()) return header.status();
  auto head = parse_header(*header);
  if (!head.ok()) return head.status();
  const auto data = file.subspan(sizeof(std::uint64_t) + header->size());
  if (head->data_bytes > data.size()) {
    return malformed(fmt::format("tensor \"{}\" ends at byte {} of the data, which has only {} bytes",
                                 printable(head->entries.back().info.name), head->data_bytes, data.size()));
  }
  if (head->data_bytes < data.size()) {
    return malformed(fmt::format("{} bytes after the last tensor belong to none", data.size() - head->data_bytes));
  }
  Safetensors result{{}, std::move(head->metadata)};
  for (SafetensorsHead::Entry& entry : head->entries) {
    const std::string name = entry.info.name;
    result.tensors[name] = {std::move(entry.info), data.subspan(entry.begin, entry.end - entry.begin)};
  }
  return result;
}

}  // namespace lockstep::checkpoint
