// A manifest: what is accepted can be written again and then has the same content. A hash is rarely right by chance, so
// the input is the part after it.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "checkpoint/hash.h"
#include "checkpoint/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep::checkpoint;
  const std::string rest(data, data + size);
  if (parse_manifest(rest).ok()) __builtin_trap();  // without a hash, or with a wrong one
  const std::string hash = hash_of(std::as_bytes(std::span(rest.data(), rest.size())));
  const auto parsed = parse_manifest("{\"xxh3\":\"" + hash + "\"" + rest);
  if (!parsed.ok()) return 0;
  const auto again = format_manifest(*parsed);
  if (!again.ok()) __builtin_trap();
  const auto reparsed = parse_manifest(*again);
  // Compared as text: NaN is not equal to itself.
  if (!reparsed.ok() || format_manifest(*reparsed).value() != *again) __builtin_trap();
  return 0;
}
