// Arbitrary bytes as the header of a message; what parses must format to a header that parses to
// the same.
#include <cstdint>
#include <cstdlib>

#include "communicator/message/message_header.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;
  const auto header = parse_message_header(std::span(reinterpret_cast<const std::byte*>(data), size));
  if (!header.ok()) return 0;
  const auto again = parse_message_header(format_message_header(*header));
  if (!again.ok() || *again != *header) std::abort();
  return 0;
}
