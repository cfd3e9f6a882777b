// Unpredictable bytes from the kernel, for nonces and identifiers. Thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace lockstep {

// Ends the process if the kernel has no random numbers, because no connection could be authenticated then.
void fill_random(std::span<std::byte> bytes);

// 2 * `bytes` lower-case hexadecimal digits.
std::string random_hex(std::size_t bytes);

}  // namespace lockstep
