#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "rendezvous/init_method.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto method = lockstep::parse_init_method({reinterpret_cast<const char*>(data), size});
  if (!method.ok()) return 0;
  // What was accepted is usable.
  if (method->scheme == lockstep::InitScheme::tcp && (method->host.empty() || method->port == 0)) std::abort();
  if (method->scheme == lockstep::InitScheme::file && method->path.front() != '/') std::abort();
  if (method->rank && method->world_size && *method->rank >= *method->world_size) std::abort();
  return 0;
}
