// The order of gradients by which buckets are assigned: at first a guess, then the order that one rank observed.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/ddp/process_group.h"

namespace lockstep::detail {

// The last parameter first: backward runs through the model in reverse.
std::vector<std::size_t> reverse_order(std::size_t count);

// What one rank has observed in its first pass.
struct ObservedOrder {
  std::vector<std::size_t> order = {};    // parameters in the order of arrival; may lack some and repeat others
  std::vector<std::int64_t> counts = {};  // how often each gradient arrives; empty if that is not fixed
};

// Returns what rank `authority` has observed; `order` then has every parameter once, those that did not arrive last.
// Collective: all ranks must pass equally many counts. Throws if the group fails.
ObservedOrder agree_on_order(ProcessGroup& group, int authority, std::size_t parameter_count,
                             const ObservedOrder& observed);

}  // namespace lockstep::detail
