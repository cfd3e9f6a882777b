// The kind of meeting that a job needs.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "launch/job.h"
#include "launch/node_meeting.h"

namespace lockstep::launch {

// Opens what is needed before nodes can meet. already_exists: the port is in use; invalid_argument: options that
// cannot work here; unauthenticated: several nodes need a secret.
Result<std::unique_ptr<NodeMeeting>> make_meeting(const Job& job);

// A sentence where the options look as if other nodes had been forgotten. May block in the resolver.
std::optional<std::string> warn_of_meeting(const RunOptions& options, const Environment& environment);

}  // namespace lockstep::launch
