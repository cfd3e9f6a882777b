// The records that launchers write into the store in which they meet.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "launch/meeting/meeting_records.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep::launch;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  // An accepted record must round-trip to a stable form.
  if (const auto node = parse_node_state(bytes); node.ok()) {
    const auto again = parse_node_state(format(*node));
    if (!again.ok() || format(*again) != format(*node)) std::abort();
  }
  if (const auto job = parse_job_state(bytes); job.ok()) {
    const auto again = parse_job_state(format(*job));
    if (!again.ok() || format(*again) != format(*job)) std::abort();
    if (job->round.number >= 0) {  // otherwise its master is not checked, and no node enters it
      round_of(job->coordinator.id, job->round.number, job->restarts, job->round.master, job->round.nodes);
    }
  }
  roster_number(bytes);
  return 0;
}
