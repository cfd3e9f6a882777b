// Spreads the ranks of an oversubscribed host over its processors.
//
// The kernel spreads threads that run for long. If there are more ranks than processors and they run many short
// operations, they yield all the time, and the kernel leaves them for tens of milliseconds on the processor on which
// they woke up: perhaps all on one, which doubles the time of every operation. So each rank publishes its processor,
// and the last rank of an oversubscribed one moves.
#pragma once

#include <span>

namespace lockstep {

// The processor to which rank `me` shall move, or -1: the one of `allowed` with the fewest ranks, if that of `me` has
// at least two more, and `me` is the last rank there. `processor_of` holds the processor of each rank.
int less_oversubscribed_processor(std::span<const int> processor_of, int me, std::span<const int> allowed);

// Moves the calling thread to `processor`, if it may run there; its affinity stays as it was.
// Fails silently, because it is only for speed.
void move_to_processor(int processor);

}  // namespace lockstep
