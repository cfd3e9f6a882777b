// For a rank that has formed a group, but cannot use it.
#pragma once

#include "lockstep/base/status.h"
#include "transport/mesh.h"

namespace lockstep {

// Sends the reason to the linked ranks, as far as their sockets accept it at once, and closes the links. Their groups
// fail with it; without it they would only see that this rank is gone.
void abandon_mesh(Mesh& mesh, const Status& why);

}  // namespace lockstep
