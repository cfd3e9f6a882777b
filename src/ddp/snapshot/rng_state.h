// The state of the random number generator as bytes, and back. What is read back is bit-identical.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::checkpoint {

// Of the default generator of the CPU, which dropout, shuffling and initialisation use.
std::string rng_to_bytes();
// Throws Error (invalid_argument) if these are not a generator's bytes.
void rng_from_bytes(std::string_view bytes);

}  // namespace lockstep::checkpoint
