// What the kernel reports of a process of this host, for messages.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// "its process has ended" (also while it is exiting), or "its process still exists".
std::string process_state(std::int64_t pid);

}  // namespace lockstep
