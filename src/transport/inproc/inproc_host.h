// Ranks as threads of one process: the arena in its own memory, links made by socketpair. Used by tests
// and by programs that run several ranks in one process.
#pragma once

#include <vector>

#include "lockstep/base/status.h"
#include "transport/mesh.h"

namespace lockstep {

// The meshes of `size` ranks of this process; element r belongs to rank r.
Result<std::vector<Mesh>> make_inproc_meshes(int size, const std::string& group_id);

}  // namespace lockstep
