// The interface between update.cpp and the vector code of each family of element types.
#pragma once

#include <cstddef>

#include "collectives/kernels/call.h"  // before Highway: names the targets that are compiled
#include "optim/update.h"

namespace lockstep::optim {

// Elements with one, reduced, gradient.
struct UpdateCall {
  const std::byte* gradient;
  double scale;
  std::byte* parameter;
  float* master;
  std::array<std::byte*, kMaxStates> states;
  std::size_t count;
};

// Each dispatches to the best instruction set of this machine.
void update_f32(const Rule& rule, const UpdateCall& call);
void update_f64(const Rule& rule, const UpdateCall& call);
void update_f16(const Rule& rule, const UpdateCall& call);
void update_bf16(const Rule& rule, const UpdateCall& call);

// The sum of squares of at most kNormBlock elements.
double square_sum_f32(const std::byte* from, std::size_t count);
double square_sum_f64(const std::byte* from, std::size_t count);
double square_sum_f16(const std::byte* from, std::size_t count);
double square_sum_bf16(const std::byte* from, std::size_t count);

// The instruction set that this machine uses: "AVX2", "SSE4", ...
const char* update_target();

}  // namespace lockstep::optim
