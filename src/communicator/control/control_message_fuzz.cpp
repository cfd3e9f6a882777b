// Arbitrary bytes as a control frame: header, then payload; what parses must format and parse again
// to the same message.
#include <cstdint>
#include <cstdlib>

#include "communicator/control/control_message.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  if (size < kControlHeaderBytes) return 0;
  const auto header = parse_control_header(bytes.first(kControlHeaderBytes));
  if (!header.ok()) return 0;
  const auto message = parse_control_payload(header->type, bytes.subspan(kControlHeaderBytes));
  if (!message.ok()) return 0;
  const Bytes again = format_control_message(*message);
  const auto second = parse_control_payload(header->type, std::span(again).subspan(kControlHeaderBytes));
  if (!second.ok() || *second != *message) std::abort();
  return 0;
}
