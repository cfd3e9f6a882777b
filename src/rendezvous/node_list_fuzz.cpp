// Slurm's lists of hosts.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "rendezvous/node_list.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto nodes = lockstep::expand_node_list({reinterpret_cast<const char*>(data), size});
  if (!nodes.ok()) return 0;
  if (nodes->empty() || nodes->size() > lockstep::kMaxListedNodes) std::abort();
  for (const auto& node : *nodes) {
    if (node.empty() || node.find_first_of("[], ") != std::string_view::npos) std::abort();
  }
  return 0;
}
