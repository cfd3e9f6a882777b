// A store file's content: header and records, replayed as FileStore does.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "store/file/file_record.h"
#include "store/store_state.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;
  auto bytes = std::as_bytes(std::span(data, size));
  [[maybe_unused]] const Status header =
      file_record::check_file_header(bytes.first(std::min(size, file_record::kFileHeaderBytes)));
  StoreState state({.max_key_bytes = 64, .max_value_bytes = 256, .max_keys = 16, .max_total_bytes = 1024});
  while (const auto parsed = file_record::parse_record(bytes)) {
    if (!std::ranges::equal(file_record::format_record(parsed->record), bytes.first(parsed->bytes))) __builtin_trap();
    [[maybe_unused]] const Status applied = file_record::apply(parsed->record, state);
    bytes = bytes.subspan(parsed->bytes);
  }
  // A checksum is rarely correct by chance, so a correct one is added to reach the fields of the record.
  if (size < 2) return 0;
  const std::size_t split = std::min<std::size_t>(size - 1, data[0]);
  const file_record::Record record{static_cast<file_record::Change>(1 + data[size - 1] % 3),
                                   std::string(data, data + split), std::string(data + split, data + size)};
  Bytes formatted = file_record::format_record(record);
  const auto parsed = file_record::parse_record(formatted);
  if (!parsed.has_value() || !(parsed->record == record)) __builtin_trap();
  if (file_record::parse_record(std::span(formatted).first(formatted.size() - 1)).has_value()) __builtin_trap();
  return 0;
}
