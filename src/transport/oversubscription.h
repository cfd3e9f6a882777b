// Ranks that crowd on few processors while others stand idle.
//
// The kernel spreads threads that run for long. Ranks that exceed processors and run many short
// operations give way all the time, and are left for tens of milliseconds where they woke up, all of
// them on one processor perhaps, which doubles the time of every operation. They know of each other
// where they run, and the last of a crowd moves.
#pragma once

#include <span>

namespace lockstep {

// The processor to which `me` is to move, or -1: the emptiest of `allowed`, by the count of ranks in
// `where`, if the own one has at least two more, and `me` is the last rank there.
int less_loaded_processor(std::span<const int> where, int me, std::span<const int> allowed);

// Moves the calling thread to `processor`, if it may run there; where it may run stays as it was.
// Fails silently: it is a matter of speed.
void move_to_processor(int processor);

}  // namespace lockstep
