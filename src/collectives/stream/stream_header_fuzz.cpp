// What parses must format back to the same bytes, and no bytes may crash the explanation.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "collectives/stream/header.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto parsed = parse_stream_header(bytes);
  if (parsed.ok() && !std::ranges::equal(format_stream_header(*parsed), bytes)) std::abort();
  if (size == kStreamHeaderBytes) {
    StreamHeaderBytes theirs;
    std::ranges::copy(bytes, theirs.begin());
    const StreamHeaderBytes mine = format_stream_header({});
    if (theirs != mine && explain_header_difference(0, mine, 1, theirs).ok()) std::abort();
  }
  return 0;
}
