// Optimizer steps over plain memory: everything that happens to an element in one pass, without torch.
//
// A rule holds the numbers of one step of one parameter group. update() applies it to a shard: any run of consecutive
// elements of a parameter, with the gradients of one or more ranks. The result of an element depends on its inputs and
// the rule only, bit for bit: not on how parameters are cut into shards, on threads, alignment or the instruction set.
// For that, products and sums are rounded one by one (never fused), roots and quotients are exactly rounded, and every
// NaN that is stored is the positive quiet one. docs/adr/0013-bits-of-the-optimizer.md has the reasons.
//
// f32 and f64 are computed in their own type. f16 and bf16 are computed in f32, with f32 state and an f32 copy of the
// parameter, the master weight. All functions are thread-safe for different shards; they do not block or fail.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "lockstep/collectives/types.h"

namespace lockstep::optim {

// The rules follow torch::optim's formulas; x is the gradient. The comments name the states that a rule has.

// [momentum]: momentum = 0 has no state. first: this is the first step, and the state, which is zero, becomes x.
struct SgdRule {
  double lr = 0;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool first = false;
};

// [average of x, average of x^2] and with amsgrad [the largest average of x^2]. decoupled: AdamW's weight decay.
struct AdamRule {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;
  bool amsgrad = false;
  std::int64_t step = 1;  // counts from 1
};

// [sum of x^2]
struct AdagradRule {
  double lr = 0;
  double lr_decay = 0;
  double eps = 1e-10;
  double weight_decay = 0;
  std::int64_t step = 1;  // counts from 1
};

// [average of x^2], with momentum [momentum], with centered [average of x]: a state keeps its place if another is
// unused.
struct RmspropRule {
  double lr = 0;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;
};

// [average of x]
struct LionRule {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;
};

using Rule = std::variant<SgdRule, AdamRule, AdagradRule, RmspropRule, LionRule>;

// The gradients of one or more ranks for the same elements. Reduced as an all-reduce does: added in this order, divided
// by `divisor`, rounded to dtype.
struct Gradients {
  DType dtype = DType::f32;
  std::span<const std::byte* const> ranks;  // at least one
  int divisor = 1;
};

constexpr std::size_t kMaxStates = 3;

struct Shard {
  Gradients gradients;
  double scale = 1;  // x = scale * reduced gradient: removes the loss scale, clips, negates
  std::byte* parameter = nullptr;
  // f32. If it does not round to the parameter, something else has written to the parameter, which then counts.
  float* master = nullptr;  // f16 and bf16 only
  // Of type f64 if dtype is f64, f32 otherwise; null for states that the rule does not have.
  std::array<std::byte*, kMaxStates> states{};
  std::size_t count = 0;
};

// Updates parameter, master weights and states in one pass. No alignment is required beyond the element's. The memory
// of parameter, master and states does not overlap; gradients may be anywhere else.
void update(const Rule& rule, const Shard& shard);

// Norms are summed in blocks of this many elements, each in a fixed order: a shard that begins at a multiple of it has
// the same block sums as the whole parameter.
constexpr std::size_t kNormBlock = 4096;
constexpr std::size_t norm_blocks(std::size_t count) { return (count + kNormBlock - 1) / kNormBlock; }

// sums[b] = the sum of the squares of the reduced gradient in block b, in f64. sums has norm_blocks(count) entries.
void square_sums(const Gradients& gradients, std::size_t count, std::span<double> sums);

}  // namespace lockstep::optim
