// CRC-32 as ZIP archives use it (polynomial 0xEDB88320).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::checkpoint {

namespace detail {

// tables[k][b]: the checksum of byte b followed by k zero bytes, so that eight bytes are added at a time.
constexpr std::array<std::array<std::uint32_t, 256>, 8> make_crc32_tables() {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0xEDB88320U : 0U);
    tables[0][byte] = value;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}
inline constexpr auto kCrc32Tables = make_crc32_tables();

}  // namespace detail

inline std::uint32_t crc32(std::span<const std::byte> bytes) {
  const auto& tables = detail::kCrc32Tables;
  const auto at = [&bytes](std::size_t i) { return std::to_integer<std::uint32_t>(bytes[i]); };
  std::uint32_t crc = 0xFFFFFFFFU;
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    crc ^= at(i) | at(i + 1) << 8 | at(i + 2) << 16 | at(i + 3) << 24;
    crc = tables[7][crc & 0xFF] ^ tables[6][crc >> 8 & 0xFF] ^ tables[5][crc >> 16 & 0xFF] ^ tables[4][crc >> 24] ^
          tables[3][at(i + 4)] ^ tables[2][at(i + 5)] ^ tables[1][at(i + 6)] ^ tables[0][at(i + 7)];
  }
  for (; i < bytes.size(); ++i) crc = (crc >> 8) ^ tables[0][(crc ^ at(i)) & 0xFF];
  return ~crc;
}

}  // namespace lockstep::checkpoint
