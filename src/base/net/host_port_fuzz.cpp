// "host:port" as users write it.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/net/socket.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(data, data + size);
  const auto parsed = lockstep::parse_host_port(text);
  if (parsed.ok() && (parsed->host.empty() || !text.ends_with(std::to_string(parsed->port)))) {
    // Leading zeros are the one way to write a port differently.
    if (parsed->host.empty() || text.find(":0") == std::string::npos) __builtin_trap();
  }
  return 0;
}
