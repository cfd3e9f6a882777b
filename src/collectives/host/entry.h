// How every operation on a host begins: all ranks announce what they are about to do, and compare.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "collectives/context.h"

namespace lockstep {

// Announces `call` with `payload` inside and waits for all local ranks. A rank that announced
// another operation is a mismatch. `largest`: the most bytes that any rank puts inside in this
// operation (at most kInlineCapacity), equal on all ranks: it decides where the payload is stored.
Status host_announce_payload(const CollectiveCall& call, CollectiveContext& context, std::span<const std::byte> payload,
                             std::size_t largest);

// The payload that a local rank announced; `largest` as in the announcement.
const std::byte* announced_payload(const CollectiveContext& context, int local, std::size_t largest);

// Announces `call` with the location of its memory: input of `input_bytes`, output of
// `output_bytes`. With `hide`, memory is announced as private even if it is registered.
Status host_announce_memory(const CollectiveCall& call, CollectiveContext& context, std::size_t input_bytes,
                            std::size_t output_bytes, bool hide);

// Where the memory of a local rank is, as it announced it.
MemoryRef announced_input(const CollectiveContext& context, int local);
MemoryRef announced_output(const CollectiveContext& context, int local);

// Views of a local rank's announced memory.
Result<PeerView> input_view(CollectiveContext& context, int local, std::size_t bytes);
Result<PeerView> output_view(CollectiveContext& context, int local, std::size_t bytes);

// Bytes after which a long pass over memory checks whether the group has failed: about a tenth of a
// millisecond's work.
inline constexpr std::size_t kBytesBetweenStopChecks = std::size_t{1} << 20;
// Calls work(begin, size) for consecutive ranges of [0, total), with a check before each but the first, in units of one
// element or one byte. Returns the group's failure if it fails meanwhile.
template <typename Work>
Status for_each_with_stop_check(CollectiveContext& context, std::size_t total, std::size_t unit_bytes,
                                const Work& work) {
  const std::size_t step = kBytesBetweenStopChecks / unit_bytes;
  for (std::size_t begin = 0; begin < total; begin += step) {
    if (begin > 0 && context.scope.stopped()) return context.scope.check({});
    work(begin, std::min(step, total - begin));
  }
  return Status();
}

// A synchronisation point: arrive, and wait for all local ranks.
Status host_synchronise(CollectiveContext& context);

// The divisor of the result of a reduction: the size of the group for avg, else 1.
int divisor_of(const CollectiveCall& call, const CollectiveContext& context);

}  // namespace lockstep
