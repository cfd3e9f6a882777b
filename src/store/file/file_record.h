// The records of a FileStore's log as bytes: docs/wire_format.md, "Store file". Pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/codec.h"
#include "lockstep/base/status.h"
#include "lockstep/store/store.h"
#include "store/store_state.h"

namespace lockstep::file_record {

inline constexpr std::uint16_t kFileVersion = 2;
inline constexpr std::size_t kFileHeaderBytes = 16;

// The same for a store's file and the shorter ones that replace it.
using FileId = std::array<std::byte, 6>;

Bytes format_file_header(const FileId& id);
// Of a header that check_file_header() accepts.
FileId parse_file_id(std::span<const std::byte> header);
// Checks the first bytes of a file, at most kFileHeaderBytes of them. protocol_error: not a store's file, or of another
// version (naming both). An incomplete header is accepted: its writer is still writing, or crashed.
Status check_file_header(std::span<const std::byte> bytes);

enum class Change : std::uint8_t { set = 1, remove = 2, append = 3 };

struct Record {
  Change change = Change::set;
  std::string key;
  std::string value;  // empty for remove

  friend bool operator==(const Record&, const Record&) = default;
};

Bytes format_record(const Record& record);

struct ParsedRecord {
  Record record;
  std::size_t bytes = 0;  // that it occupies
};
// The record at the start of `bytes`; nullopt if there is no complete and valid one: the end of the
// log, or the rest of a record that a crash left.
std::optional<ParsedRecord> parse_record(std::span<const std::byte> bytes);

Status apply(const Record& record, StoreState& state);

}  // namespace lockstep::file_record
