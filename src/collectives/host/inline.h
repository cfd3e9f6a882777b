// Small messages on one host: the payload travels inside the announcement.
//
// An operation needs one exchange of announcements anyway, to compare what the ranks are about to
// do. A small payload travels inside it: up to 32 bytes in the cache line that holds the announcement
// itself. After that one exchange every rank has every rank's input and computes its own output,
// reducing in rank order, so that all of them get the same bits. No second synchronisation is
// needed, because announcement slots alternate (transport/shared_area.h).
#pragma once

#include <cstddef>

#include "collectives/context.h"

namespace lockstep {

// Bytes of input that this operation would put inside one rank's announcement.
std::size_t inline_payload_bytes(const CollectiveCall& call, int ranks);

// Any kind of operation with inline_payload_bytes <= kInlineCapacity, all ranks on one host.
Status host_inline(const CollectiveCall& call, CollectiveContext& context);

}  // namespace lockstep
