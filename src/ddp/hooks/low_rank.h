// Small dense matrices for PowerSGD, row by row in memory. Plain loops rather than a BLAS, whose results
// depend on the processor and the number of threads: ranks must get the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>

namespace lockstep::detail {

struct MatrixView {
  float* data = nullptr;
  std::size_t rows = 0;
  std::size_t columns = 0;
};

// Makes the columns orthonormal, from the first to the last. A column that depends on those before it, or
// is zero, becomes zero; one that is not finite becomes NaN. With `refill`, both are replaced by random
// values from it, so that the result has full rank (if rows >= columns).
void orthonormalise(MatrixView matrix, std::mt19937_64* refill = nullptr);

// Values in [-1, 1).
void fill_random(MatrixView matrix, std::mt19937_64& random);

// out = left * transposed(right); out has left.rows rows and right.rows columns.
void multiply_transposed(MatrixView left, MatrixView right, float* out);

bool all_finite(std::span<const float> values);

}  // namespace lockstep::detail
