#include "ddp/hooks/low_rank.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace lockstep::detail {

namespace {

// What is left of a column after projection, relative to what it was: below this it is rounding error.
constexpr double kDependent = 1e-5;

// A column of a matrix in double, in which squares of floats neither overflow nor vanish.
using Column = std::vector<double>;

void load(MatrixView matrix, std::size_t c, Column& column) {
  for (std::size_t r = 0; r < matrix.rows; ++r) column[r] = matrix.data[r * matrix.columns + c];
}

double norm(const Column& column) {
  double sum = 0;
  for (double value : column) sum += value * value;
  return std::sqrt(sum);
}

// Twice, because once leaves a rounding error that matters if columns are nearly dependent.
void project_out(MatrixView matrix, std::size_t c, Column& column) {
  for (int pass = 0; pass < 2; ++pass) {
    for (std::size_t before = 0; before < c; ++before) {
      double dot = 0;
      for (std::size_t r = 0; r < matrix.rows; ++r) dot += column[r] * matrix.data[r * matrix.columns + before];
      for (std::size_t r = 0; r < matrix.rows; ++r) column[r] -= dot * matrix.data[r * matrix.columns + before];
    }
  }
}

void store(MatrixView matrix, std::size_t c, const Column& column, double factor) {
  for (std::size_t r = 0; r < matrix.rows; ++r) {
    matrix.data[r * matrix.columns + c] = static_cast<float>(column[r] * factor);
  }
}

// The factor that makes the column's length 1; 0 if it depends on the columns before it.
double normaliser(MatrixView matrix, std::size_t c, Column& column) {
  load(matrix, c, column);
  const double before = norm(column);
  if (!std::isfinite(before)) return std::numeric_limits<double>::quiet_NaN();
  project_out(matrix, c, column);
  const double after = norm(column);
  return after > kDependent * before ? 1 / after : 0;
}

float draw(std::mt19937_64& random) {  // 24 bits: exact in f32, unlike std::uniform_real_distribution everywhere equal
  return static_cast<float>(static_cast<std::int64_t>(random() >> 40) - (1 << 23)) / static_cast<float>(1 << 23);
}

}  // namespace

void orthonormalise(MatrixView matrix, std::mt19937_64* refill) {
  Column column(matrix.rows);
  for (std::size_t c = 0; c < matrix.columns; ++c) {
    double factor = normaliser(matrix, c, column);
    constexpr int kTries = 3;
    for (int i = 0; i < kTries && refill && !(factor > 0); ++i) {
      for (std::size_t r = 0; r < matrix.rows; ++r) matrix.data[r * matrix.columns + c] = draw(*refill);
      factor = normaliser(matrix, c, column);
    }
    store(matrix, c, column, factor);
  }
}

void fill_random(MatrixView matrix, std::mt19937_64& random) {
  for (std::size_t i = 0; i < matrix.rows * matrix.columns; ++i) matrix.data[i] = draw(random);
}

void multiply_transposed(MatrixView left, MatrixView right, float* out) {
  const std::size_t rank = right.columns;
  std::vector<float> columns(right.rows * rank);  // of `right`, one after the other: the inner loop is a vector loop
  for (std::size_t r = 0; r < right.rows; ++r) {
    for (std::size_t k = 0; k < rank; ++k) columns[k * right.rows + r] = right.data[r * rank + k];
  }
  for (std::size_t r = 0; r < left.rows; ++r, out += right.rows) {
    std::fill_n(out, right.rows, 0.0F);
    for (std::size_t k = 0; k < rank; ++k) {
      const float factor = left.data[r * rank + k];
      const float* column = columns.data() + k * right.rows;
      for (std::size_t c = 0; c < right.rows; ++c) out[c] += factor * column[c];
    }
  }
}

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

}  // namespace lockstep::detail
