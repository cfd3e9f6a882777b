// The records of TensorBoard's event files, as bytes.
//
// An event file is a series of TFRecords: the length of the data (8 bytes), a checksum of the length (4), the data, a
// checksum of the data (4), all little-endian. Checksums are CRC32C, masked. The data is a protobuf message of type
// tensorflow.Event; the few fields that curves need are encoded here by hand.
//
// All functions are pure and return one complete record.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::record {

std::uint32_t crc32c(std::string_view data);

// Must be a file's first record.
std::string event_file_version(double wall_seconds);

struct EventScalar {
  std::string_view tag;  // UTF-8
  float value = 0;
};
std::string scalars_event(double wall_seconds, std::int64_t step, std::span<const EventScalar> scalars);

// The training continues at `step`: TensorBoard forgets what it has read of this and later steps.
std::string restart_event(double wall_seconds, std::int64_t step);

}  // namespace lockstep::record
