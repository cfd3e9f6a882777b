// The header of a state that is sent to another process. The first byte chooses: the rest is a header, or the head of
// the optimizer in a header that is otherwise correct.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "checkpoint/state_header.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;
  using namespace lockstep::checkpoint;
  if (size == 0) return 0;
  const auto rest = std::as_bytes(std::span(data + 1, size - 1));
  if (data[0] % 2 == 0) {
    const auto parsed = parse_state_header(rest);
    if (parsed.ok() && parsed->progress < 0) __builtin_trap();
    return 0;
  }
  const std::string head(reinterpret_cast<const char*>(rest.data()), rest.size());
  const std::string empty = lay_out_safetensors({}).value().head;
  const auto bytes = format_state_header(3, {.step = 3}, {.model = empty, .optimizer = head, .values = std::nullopt});
  if (!bytes.ok()) __builtin_trap();
  const auto parsed = parse_state_header(*bytes);
  // The parts are accepted together exactly if each is by itself.
  if (parsed.ok() != parse_safetensors_head(rest).ok()) __builtin_trap();
  if (!parsed.ok()) return 0;
  if (parsed->progress != 3 || parsed->manifest.step != 3 || !parsed->optimizer || parsed->values) __builtin_trap();
  std::uint64_t covered = 0;
  for (const auto& entry : parsed->optimizer->entries) {
    if (entry.begin != covered || entry.end < entry.begin) __builtin_trap();
    covered = entry.end;
  }
  if (covered != parsed->optimizer->data_bytes) __builtin_trap();
  return 0;
}
