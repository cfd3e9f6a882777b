// Little-endian bytes in and out, for every wire format of Lockstep (docs/wire_format.md).
//
// A ByteReader never reads past its end: after the first short read every later read yields zero
// and `ok()` is false, so a parser reads all its fields and checks once.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

using Bytes = std::vector<std::byte>;

static_assert(std::endian::native == std::endian::little,
              "the codec copies integers as they are in memory; a big-endian port must swap here");

class ByteWriter {
 public:
  template <std::integral T>
  void put(T value) {
    // Not insert(): g++ 12 at -O3 warns that it writes past the end.
    const std::size_t end = bytes_.size();
    bytes_.resize(end + sizeof(T));
    std::memcpy(bytes_.data() + end, &value, sizeof(T));
  }
  void put_bytes(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  // u32 length, then the bytes.
  void put_string(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    put_bytes(std::as_bytes(std::span(text.data(), text.size())));
  }
  Bytes take() { return std::move(bytes_); }
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <std::integral T>
  T get() {
    T value{};
    if (const auto raw = take(sizeof(T)); raw.size() == sizeof(T)) std::memcpy(&value, raw.data(), sizeof(T));
    return value;
  }
  // The next `size` bytes, or nothing (and ok() becomes false) if fewer are left.
  std::span<const std::byte> take(std::size_t size) {
    if (!ok_ || size > rest_.size()) {
      ok_ = false;
      return {};
    }
    const auto result = rest_.first(size);
    rest_ = rest_.subspan(size);
    return result;
  }
  // Counterpart of put_string; a length above `limit` counts as malformed, before any allocation.
  std::string get_string(std::size_t limit) {
    const auto size = get<std::uint32_t>();
    if (size > limit) ok_ = false;
    const auto raw = take(size);
    return std::string(reinterpret_cast<const char*>(raw.data()), raw.size());
  }

  bool ok() const { return ok_; }
  // True when everything was read and nothing is left over.
  bool complete() const { return ok_ && rest_.empty(); }
  std::size_t remaining() const { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

}  // namespace lockstep
