// Slurm's lists of hosts: "node[01-03,07],gpu-[1-2]x[3-4]". Pure parsing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/status.h"

namespace lockstep {

// More hosts than this are considered a mistake; checked before the names are created.
inline constexpr std::size_t kMaxListedNodes = 65536;

// All host names, in the order of the list; the last bracket counts fastest. Numbers keep the width of the
// first one of their range: [08-10] is 08, 09, 10. Never empty: an empty list, an open bracket, a range that
// runs backwards and the like are invalid_argument, naming the list and the mistake.
Result<std::vector<std::string>> expand_node_list(std::string_view list);

}  // namespace lockstep
