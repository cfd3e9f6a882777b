#include "base/start_thread.h"

#include <fmt/format.h>

#include "base/net/socket.h"

namespace lockstep {

Status no_thread(std::string_view purpose, int error) {
  return {StatusCode::resource_exhausted,
          fmt::format("cannot start the thread that {}: {}; raise the limit of threads (ulimit -u, the pids.max of the "
                      "container) or of memory",
                      purpose, errno_text(error))};
}

}  // namespace lockstep
