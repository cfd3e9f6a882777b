#include "record/event_file.h"

#include <array>
#include <bit>

namespace lockstep::record {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82F63B78U : 0);
    table[i] = value;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kTable = make_table();

template <typename Integer>
void put_fixed(std::string& to, Integer value) {
  for (std::size_t i = 0; i < sizeof(value); ++i) to += static_cast<char>((value >> (8 * i)) & 0xFF);
}

// Protobuf's wire format. A field's key is its number and the type of what follows.
enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>((value & 0x7F) | 0x80);
  to += static_cast<char>(value);
}
void put_key(std::string& to, std::uint32_t field, Wire wire) {
  put_varint(to, field << 3 | static_cast<std::uint32_t>(wire));
}
void put_bytes(std::string& to, std::uint32_t field, std::string_view data) {
  put_key(to, field, Wire::bytes);
  put_varint(to, data.size());
  to += data;
}

std::uint32_t masked(std::uint32_t crc) { return std::rotr(crc, 15) + 0xA282EAD8U; }

std::string framed(std::string_view data) {
  std::string record;
  put_fixed(record, static_cast<std::uint64_t>(data.size()));
  put_fixed(record, masked(crc32c(record)));
  record += data;
  put_fixed(record, masked(crc32c(data)));
  return record;
}

// message Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5;
//                 SessionLog session_log = 7; }
std::string event(double wall_seconds, std::int64_t step) {
  std::string data;
  put_key(data, 1, Wire::fixed64);
  put_fixed(data, std::bit_cast<std::uint64_t>(wall_seconds));
  if (step != 0) {
    put_key(data, 2, Wire::varint);
    put_varint(data, static_cast<std::uint64_t>(step));
  }
  return data;
}

}  // namespace

std::uint32_t crc32c(std::string_view data) {
  std::uint32_t crc = ~std::uint32_t{0};
  for (const char c : data) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~crc;
}

std::string event_file_version(double wall_seconds) {
  std::string data = event(wall_seconds, 0);
  put_bytes(data, 3, "brain.Event:2");
  return framed(data);
}

// message Summary { message Value { string tag = 1; float simple_value = 2; } repeated Value value = 1; }
std::string scalars_event(double wall_seconds, std::int64_t step, std::span<const EventScalar> scalars) {
  std::string summary;
  for (const EventScalar& scalar : scalars) {
    std::string value;
    put_bytes(value, 1, scalar.tag);
    put_key(value, 2, Wire::fixed32);
    put_fixed(value, std::bit_cast<std::uint32_t>(scalar.value));
    put_bytes(summary, 1, value);
  }
  std::string data = event(wall_seconds, step);
  put_bytes(data, 5, summary);
  return framed(data);
}

// message SessionLog { enum SessionStatus { START = 1; } SessionStatus status = 1; }
std::string restart_event(double wall_seconds, std::int64_t step) {
  std::string session;
  put_key(session, 1, Wire::varint);
  put_varint(session, 1);
  std::string data = event(wall_seconds, step);
  put_bytes(data, 7, session);
  return framed(data);
}

}  // namespace lockstep::record
