// Numbers as text: what is accepted is what would be written.
#include <cstddef>
#include <cstdint>
#include <string>

#include "checkpoint/field_text.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep::checkpoint;
  const std::string text(data, data + size);
  double number = 0;
  if (parse_field(text, number) && format_field(number) != text) __builtin_trap();
  std::int64_t whole = 0;
  if (parse_field(text, whole) && format_field(whole) != text) __builtin_trap();
  bool flag = false;
  if (parse_field(text, flag) && format_field(flag) != text) __builtin_trap();
  return 0;
}
