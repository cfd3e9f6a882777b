// For the kernels' tests: what update() and square_sums() promise, element by element, without vectors.
#pragma once

#include <cmath>
#include <vector>

#include "collectives/testing/reference_kernels.h"
#include "optim/exact_math.h"
#include "optim/update.h"

namespace lockstep::optim::testing {

using kernels_test::Bytes;
using kernels_test::element;

inline std::uint16_t narrow(DType dtype, float value) {
  return kernels_test::narrow(dtype == DType::f16 ? kernels_test::kF16 : kernels_test::kBF16, value);
}

template <typename T>
T widen(DType dtype, const Bytes& bytes, std::size_t i) {
  if (dtype == DType::f32) return static_cast<T>(element<float>(bytes, i));
  if (dtype == DType::f64) return static_cast<T>(element<double>(bytes, i));
  const auto format = dtype == DType::f16 ? kernels_test::kF16 : kernels_test::kBF16;
  return kernels_test::widen(format, element<std::uint16_t>(bytes, i));
}

template <typename T>
void put(Bytes& bytes, std::size_t i, T value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(value)) value = std::numeric_limits<T>::quiet_NaN();
  }
  std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
}

// The formulas of torch::optim in type T. The states are s[0] to s[2], as Shard::states.
template <typename T>
struct Formula {
  T w, x, s[3];

  static T number(double value) { return static_cast<T>(value); }

  void apply(const SgdRule& r) {
    x = x + number(r.weight_decay) * w;
    if (r.momentum != 0) {
      const T keep = r.first ? T{0} : number(r.momentum), take = r.first ? T{1} : number(1 - r.dampening);
      s[0] = keep * s[0] + take * x;
      x = r.nesterov ? x + number(r.momentum) * s[0] : s[0];
    }
    w = w - number(r.lr) * x;
  }
  void apply(const AdamRule& r) {
    x = x + number(r.decoupled ? 0 : r.weight_decay) * w;
    s[0] = number(r.beta1) * s[0] + number(1 - r.beta1) * x;
    s[1] = number(r.beta2) * s[1] + number(1 - r.beta2) * x * x;
    T largest = s[1];
    if (r.amsgrad) largest = s[2] = s[1] > s[2] || std::isnan(s[1]) ? s[1] : s[2];
    const T root = number(1 / std::sqrt(1 - integer_power(r.beta2, r.step)));
    const T size = number(r.lr / (1 - integer_power(r.beta1, r.step)));
    const T shrink = number(r.decoupled ? 1 - r.lr * r.weight_decay : 1);
    w = w * shrink - size * s[0] / (std::sqrt(largest) * root + number(r.eps));
  }
  void apply(const AdagradRule& r) {
    x = x + number(r.weight_decay) * w;
    s[0] = s[0] + x * x;
    const T lr = number(r.lr / (1 + static_cast<double>(r.step - 1) * r.lr_decay));
    w = w - lr * x / (std::sqrt(s[0]) + number(r.eps));
  }
  void apply(const RmspropRule& r) {
    x = x + number(r.weight_decay) * w;
    s[0] = number(r.alpha) * s[0] + number(1 - r.alpha) * x * x;
    T square = s[0];
    if (r.centered) {
      s[2] = number(r.alpha) * s[2] + number(1 - r.alpha) * x;
      square = s[0] - s[2] * s[2];
      if (square < 0) square = 0;
    }
    const T divisor = std::sqrt(square) + number(r.eps);
    if (r.momentum != 0) {
      s[1] = number(r.momentum) * s[1] + x / divisor;
      w = w - number(r.lr) * s[1];
    } else {
      w = w - number(r.lr) * x / divisor;
    }
  }
  void apply(const LionRule& r) {
    const T direction = number(r.beta1) * s[0] + number(1 - r.beta1) * x;
    s[0] = number(r.beta2) * s[0] + number(1 - r.beta2) * x;
    const T change = direction > 0 ? number(r.lr) : direction < 0 ? -number(r.lr) : direction;
    w = w * number(1 - r.lr * r.weight_decay) - change;
  }
};

inline unsigned states_of(const Rule& rule) {
  if (const auto* sgd = std::get_if<SgdRule>(&rule)) return sgd->momentum != 0 ? 1 : 0;
  if (const auto* adam = std::get_if<AdamRule>(&rule)) return adam->amsgrad ? 7 : 3;
  if (const auto* rmsprop = std::get_if<RmspropRule>(&rule)) {
    return 1u | (rmsprop->momentum != 0 ? 2u : 0u) | (rmsprop->centered ? 4u : 0u);
  }
  return 1;
}

template <typename T>
void update_all_by_hand(const Rule& rule, DType dtype, const Bytes& gradient, double scale, Bytes& parameter,
                        Bytes& master, std::array<Bytes, kMaxStates>& states, std::size_t count) {
  const bool half = dtype == DType::f16 || dtype == DType::bf16;
  for (std::size_t i = 0; i < count; ++i) {
    Formula<T> formula{};
    formula.w = widen<T>(dtype, parameter, i);
    if (half) {
      const float wide = element<float>(master, i);
      Bytes rounded(2);
      put(rounded, 0, narrow(dtype, wide));
      if (widen<float>(dtype, rounded, 0) == formula.w) formula.w = wide;
    }
    formula.x = widen<T>(dtype, gradient, i) * static_cast<T>(scale);
    for (std::size_t k = 0; k < kMaxStates; ++k) formula.s[k] = element<T>(states[k], i);
    std::visit([&](const auto& r) { formula.apply(r); }, rule);
    for (std::size_t k = 0; k < kMaxStates; ++k) {
      if ((states_of(rule) >> k & 1) != 0) put(states[k], i, formula.s[k]);
    }
    if (half) {
      put(master, i, static_cast<float>(formula.w));
      put(parameter, i, narrow(dtype, static_cast<float>(formula.w)));
    } else {
      put(parameter, i, formula.w);
    }
  }
}

inline void update_by_hand(const Rule& rule, DType dtype, const Bytes& gradient, double scale, Bytes& parameter,
                           Bytes& master, std::array<Bytes, kMaxStates>& states, std::size_t count) {
  if (dtype == DType::f64) {
    update_all_by_hand<double>(rule, dtype, gradient, scale, parameter, master, states, count);
  } else {
    update_all_by_hand<float>(rule, dtype, gradient, scale, parameter, master, states, count);
  }
}

inline std::vector<double> square_sums_by_hand(DType dtype, const Bytes& bytes, std::size_t count) {
  std::vector<double> sums;
  for (std::size_t begin = 0; begin < count; begin += kNormBlock) {
    double lanes[16] = {};
    for (std::size_t i = begin; i < std::min(count, begin + kNormBlock); ++i) {
      const double x = widen<double>(dtype, bytes, i);
      lanes[(i - begin) % 16] += x * x;
    }
    double total = 0;
    for (double lane : lanes) total += lane;
    sums.push_back(total);
  }
  return sums;
}

// Finite numbers between -2 and 2.
inline Bytes ordinary_numbers(DType dtype, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> values(-2, 2);
  Bytes bytes(count * element_size(dtype));
  for (std::size_t i = 0; i < count; ++i) {
    const double value = values(random);
    if (dtype == DType::f64) put(bytes, i, value);
    if (dtype == DType::f32) put(bytes, i, static_cast<float>(value));
    if (element_size(dtype) == 2) put(bytes, i, narrow(dtype, static_cast<float>(value)));
  }
  return bytes;
}

}  // namespace lockstep::optim::testing
