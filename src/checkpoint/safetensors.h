// The safetensors format, as published by Hugging Face: tensors by name in one file that many programs read.
//
//   u64, little-endian    size of the header
//   header                JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...,
//                         "__metadata__": {"key": "text", ...}}, padded with spaces
//   data                  the tensors, row-major and little-endian, one after the other without gaps
//
// Pure functions over bytes; no files. Tensors are ordered by the size of their elements and the header is padded to
// kDataAlignment, so that in a file that is mapped each tensor is aligned for its type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/status.h"

namespace lockstep::checkpoint {

inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;  // the published limit
inline constexpr std::size_t kDataAlignment = 64;

// Every type whose elements are whole bytes.
enum class Dtype : std::uint8_t {
  boolean,
  u8,
  i8,
  f8_e4m3,
  f8_e5m2,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  i64,
  u64,
  f64,
  c64,
};
// "BOOL", "F32", ...: as in the header.
const char* to_string(Dtype dtype);
std::optional<Dtype> parse_dtype(std::string_view name);
std::size_t element_bytes(Dtype dtype);

struct TensorInfo {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> shape;

  // "F32 [2, 3]"
  std::string describe() const;
  friend bool operator==(const TensorInfo&, const TensorInfo&) = default;
};
using Metadata = std::map<std::string, std::string>;

// How a file with these tensors is laid out. The data of tensor order[0] follows the head at once, then order[1], ...
struct SafetensorsLayout {
  std::string head;  // size, header and padding; a multiple of kDataAlignment
  std::vector<std::size_t> order;
  std::uint64_t data_bytes = 0;
};
// invalid_argument: a name appears twice, is "__metadata__" or is not UTF-8, a negative size, or more than the format
// can hold.
Result<SafetensorsLayout> lay_out_safetensors(std::span<const TensorInfo> tensors, const Metadata& metadata = {});

// The head of a file, taken apart. The data is in other memory, or has not arrived yet.
struct SafetensorsHead {
  struct Entry {
    TensorInfo info;
    std::uint64_t begin = 0;  // into the data
    std::uint64_t end = 0;
  };
  std::vector<Entry> entries;  // in the order of their data
  Metadata metadata;
  std::uint64_t data_bytes = 0;
};
// Strict: protocol_error with the reason, unless `head` is exactly the head of one valid file: size, header and
// padding. Names of any kind, offsets without gap or overlap, sizes that fit the shapes, known types. Allocates no more
// than in proportion to the head's size, however much data it announces.
Result<SafetensorsHead> parse_safetensors_head(std::span<const std::byte> head);

// A whole file, taken apart. The spans point into the bytes that were parsed.
struct Safetensors {
  struct Entry {
    TensorInfo info;
    std::span<const std::byte> data;
  };
  std::map<std::string, Entry> tensors;
  Metadata metadata;
};
// As parse_safetensors_head(), for a head that is followed by exactly its data. Never reads beyond `file`, never
// allocates more than in proportion to its size.
Result<Safetensors> parse_safetensors(std::span<const std::byte> file);

}  // namespace lockstep::checkpoint
