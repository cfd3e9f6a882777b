// What ranks exchange while they save and load. Collective; a null group means this process by itself.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/snapshot_directory.h"
#include "lockstep/base/status.h"
#include "lockstep/ddp/process_group.h"

namespace lockstep::checkpoint {

using GroupPointer = std::shared_ptr<ProcessGroup>;

// What `function` throws, as a Status: so that a rank that fails still takes part in agree().
Status status_of(const std::function<void()>& function);

// Throws on every rank the error of the lowest rank that has one. So no rank waits for one that has failed.
void agree(const GroupPointer& group, const Status& mine);

// Every rank's bytes (equally many), in rank order; only on rank 0.
std::vector<std::string> gather_on_first(const GroupPointer& group, const std::string& mine);

// Sends what rank 0 has to all ranks.
void share_from_first(const GroupPointer& group, NewestSnapshot& newest);

}  // namespace lockstep::checkpoint
