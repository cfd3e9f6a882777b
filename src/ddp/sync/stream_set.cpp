#include "ddp/sync/stream_set.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace lockstep::detail {

c10::Stream StreamSet::current(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

void StreamSet::add(c10::Stream stream) {
  if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) streams_.push_back(stream);
}

void StreamSet::block(c10::Stream waiting) const {
  for (const c10::Stream& stream : streams_) {
    if (stream == waiting) continue;
    // For everything queued on the stream so far: more than needed, never less.
    c10::Event event(stream.device_type());
    event.record(stream);
    event.block(waiting);
  }
}

}  // namespace lockstep::detail
