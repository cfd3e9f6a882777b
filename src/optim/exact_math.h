// Elementary functions that have the same bits on every machine: built from products, sums, quotients and roots alone,
// which IEEE 754 defines exactly. The C library's pow and cos are chosen by processor and differ in the last bit, which
// is enough to make the replicas of a model drift apart. Relative errors are below 1e-14 for the ranges that schedules
// use.
#pragma once

#include <cstdint>

namespace lockstep::optim {

// base^exponent by repeated squaring; exponent >= 0.
double integer_power(double base, std::int64_t exponent);
// base^exponent for base >= 0. Exact results for exponent 0 and 1.
double real_power(double base, double exponent);
// cos(pi * x) for 0 <= x <= 1; exact at 0, 1/2 and 1.
double cos_pi(double x);

}  // namespace lockstep::optim
