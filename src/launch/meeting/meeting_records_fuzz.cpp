// What launchers write into the store where they meet.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "launch/meeting/meeting_records.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep::launch;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  // What is accepted is written again in a form that is stable.
  if (const auto node = parse_node_state(bytes); node.ok()) {
    const auto again = parse_node_state(format(*node));
    if (!again.ok() || format(*again) != format(*node)) std::abort();
  }
  if (const auto hall = parse_hall_state(bytes); hall.ok()) {
    const auto again = parse_hall_state(format(*hall));
    if (!again.ok() || format(*again) != format(*hall)) std::abort();
    round_of(hall->keeper.id, hall->round.number, hall->restarts, hall->round.master + ":1", hall->round.nodes);
  }
  roster_number(bytes);
  return 0;
}
