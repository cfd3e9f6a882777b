#include "ddp/backends/watch_group.h"

#include "communicator/communicator_impl.h"
#include "rendezvous/rendezvous.h"

namespace lockstep::detail {

WatchGroup make_watch_group(const ProcessGroupOptions& options) {
  InitOptions init{.init_method = options.init_method, .rank = options.rank, .world_size = options.world_size};
  init.group.name = options.group_name;
  init.group.timeout = options.timeout;
  init.group.init_timeout = options.init_timeout;
  init.group.peer_timeout = options.peer_timeout;
  const MeetingPoint where = Communicator::Impl::find(init);
  return {Communicator::Impl::at(where, init.group), where.store, where.master_host};
}

}  // namespace lockstep::detail
