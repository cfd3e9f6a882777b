// The least that an AdamW step has to do: read gradient, parameter and two averages, write all but the gradient.
#pragma once

#include <cstddef>

namespace lockstep::bench {

// One pass over four arrays, with hardly any arithmetic.
void touch_as_adamw(const float* gradient, float* parameter, float* average, float* square, std::size_t count);

}  // namespace lockstep::bench
