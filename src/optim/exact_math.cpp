#include "optim/exact_math.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace lockstep::optim {
namespace {

// log(x) for x > 0: x = 2^k * m with m in [sqrt(1/2), sqrt(2)); log(m) = 2 atanh((m - 1) / (m + 1)).
struct Logarithm {
  int exponent;     // k
  double mantissa;  // log(m)
};
Logarithm logarithm(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < std::numbers::sqrt2 / 2) {
    m *= 2;
    --exponent;
  }
  const double s = (m - 1) / (m + 1);
  const double square = s * s;
  double sum = 0;
  for (int n = 27; n >= 1; n -= 2) sum = sum * square + 1.0 / n;
  return {exponent, 2 * s * sum};
}

// e^x for |x| <= 1.
double exponential(double x) {
  double sum = 1;
  for (int n = 20; n >= 1; --n) sum = 1 + sum * x / n;
  return sum;
}

// cos(pi x) and sin(pi x) for 0 <= x <= 1/4.
double small_cos_pi(double x) {
  const double square = (std::numbers::pi * x) * (std::numbers::pi * x);
  double sum = 1;
  for (int n = 20; n >= 2; n -= 2) sum = 1 - sum * square / (n * (n - 1));
  return sum;
}
double small_sin_pi(double x) {
  const double angle = std::numbers::pi * x;
  const double square = angle * angle;
  double sum = 1;
  for (int n = 21; n >= 3; n -= 2) sum = 1 - sum * square / (n * (n - 1));
  return angle * sum;
}

}  // namespace

double integer_power(double base, std::int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result *= base;
    base *= base;
  }
  return result;
}

double real_power(double base, double exponent) {
  if (exponent == 0) return 1;
  if (base == 0) return exponent > 0 ? 0 : std::numeric_limits<double>::infinity();
  if (exponent > 0 && exponent <= 64) {
    const double twice = 2 * exponent;
    if (twice == std::floor(twice)) {  // whole and half exponents: squaring, and an exact root
      const double whole = integer_power(base, static_cast<std::int64_t>(exponent));
      return exponent == std::floor(exponent) ? whole : whole * std::sqrt(base);
    }
  }
  // base^exponent = 2^(k * exponent) * e^(exponent * log(m)); the integer part of the power of two is exact.
  const Logarithm log = logarithm(base);
  const double twos = log.exponent * exponent + log.mantissa * exponent / std::numbers::ln2;
  const double whole = std::floor(twos + 0.5);
  const double rest = (log.exponent * exponent - whole) * std::numbers::ln2 + log.mantissa * exponent;
  return std::ldexp(exponential(rest), static_cast<int>(whole));
}

double cos_pi(double x) {
  if (x > 0.5) return -cos_pi(1 - x);
  return x <= 0.25 ? small_cos_pi(x) : small_sin_pi(0.5 - x);
}

}  // namespace lockstep::optim
