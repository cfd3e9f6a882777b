#include "communicator/abandon_mesh.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include "communicator/control/control_message.h"

namespace lockstep {

void abandon_mesh(Mesh& mesh, const Status& why) {
  const std::string self = mesh.topology.member(mesh.topology.rank).describe();
  const Bytes frame =
      format_control_message(Abort{why.with_context(fmt::format("{} could not create its group", self))});
  for (Channel& link : mesh.control) {
    if (!link.valid()) continue;
    // The socket is empty. If it is not, or broken, the peer sees that the link has ended.
    [[maybe_unused]] const IoResult sent = link.send(frame);
    // Half-close first, as the control plane does.
    ::shutdown(link.fd(), SHUT_WR);
    link.reset();
  }
}

}  // namespace lockstep
