#include "bench/limits/update_limit.h"

namespace lockstep::bench {

void touch_as_adamw(const float* __restrict gradient, float* __restrict parameter, float* __restrict average,
                    float* __restrict square, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float x = gradient[i];
    average[i] += x;
    square[i] += x;
    parameter[i] += x;
  }
}

}  // namespace lockstep::bench
