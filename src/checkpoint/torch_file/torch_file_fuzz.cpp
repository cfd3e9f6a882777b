// A file of torch.save: what is accepted stays inside the file.
#include <cstddef>
#include <cstdint>
#include <span>

#include "checkpoint/torch_file/pickle.h"
#include "checkpoint/torch_file/torch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep::checkpoint;
  const auto bytes = std::as_bytes(std::span(data, size));
  // The container's checksums keep a fuzzer from what is inside.
  static_cast<void>(parse_pickle(bytes));
  const auto parsed = parse_torch_file(bytes);
  if (!parsed.ok()) return 0;
  for (const auto& [name, entry] : parsed->tensors) {
    if (entry.storage.data() < bytes.data() || entry.storage.data() + entry.storage.size() > bytes.data() + size) {
      __builtin_trap();
    }
  }
  return 0;
}
