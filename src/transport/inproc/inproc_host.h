// Ranks as threads of one process: areas in plain memory, links made by socketpair. Used by tests
// and by anything that wants several ranks in one process.
#pragma once

#include <vector>

#include "lockstep/base/status.h"
#include "transport/mesh.h"

namespace lockstep {

// The meshes of `size` ranks of this process; element r belongs to rank r.
Result<std::vector<Mesh>> make_inproc_meshes(int size, const std::string& group_id);

}  // namespace lockstep
