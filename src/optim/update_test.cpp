#include "optim/update.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <string>

#include "collectives/kernels/kernels.h"
#include "optim/kernels/call.h"  // before Highway: names the targets that are compiled
#include "optim/testing/reference_update.h"
//
#include "hwy/targets.h"

namespace lockstep::optim {
namespace {

using kernels_test::Bytes;

constexpr DType kDTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16};

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = {
      SgdRule{.lr = 0.1},
      SgdRule{.lr = 0.1, .weight_decay = 0.01},
      SgdRule{.lr = 0.03, .momentum = 0.9, .dampening = 0.1, .weight_decay = 1e-4},
      SgdRule{.lr = 0.03, .momentum = 0.9, .dampening = 0.1, .first = true},
      SgdRule{.lr = 0.05, .momentum = 0.8, .nesterov = true},
      AdamRule{.lr = 1e-3, .step = 1},
      AdamRule{.lr = 1e-3, .weight_decay = 0.1, .step = 3},
      AdamRule{.lr = 3e-3, .beta1 = 0.8, .weight_decay = 0.1, .decoupled = true, .step = 1000},
      AdamRule{.lr = 3e-3, .weight_decay = 0.1, .decoupled = true, .amsgrad = true, .step = 7},
      AdagradRule{.lr = 0.01, .lr_decay = 0.1, .weight_decay = 0.01, .step = 5},
      RmspropRule{.lr = 0.01, .weight_decay = 0.01},
      RmspropRule{.lr = 0.01, .momentum = 0.9},
      RmspropRule{.lr = 0.01, .centered = true},
      RmspropRule{.lr = 0.01, .momentum = 0.9, .centered = true},
      LionRule{.lr = 1e-4, .weight_decay = 0.1},
      LionRule{.lr = 1e-4, .beta2 = 0},
  };
  return all;
}

// A parameter with everything that an update reads and writes, at addresses that are shifted from alignment.
struct Memory {
  Memory(DType dtype_, std::size_t count_, std::uint64_t seed) : dtype(dtype_), count(count_) {
    const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
    gradient = kernels_test::hard_inputs(dtype, count, seed);
    parameter = kernels_test::hard_inputs(dtype, count, seed + 1);
    master = kernels_test::hard_inputs(DType::f32, count, seed + 2);
    // Most master weights belong to their parameter; the others must give way.
    if (wide != dtype) keep_most_masters(seed);
    for (std::size_t k = 0; k < kMaxStates; ++k) states[k] = kernels_test::hard_inputs(wide, count, seed + 3 + k);
  }

  void keep_most_masters(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (std::size_t i = 0; i < count; ++i) {
      if (random() % 8 == 0) continue;
      const auto bits = testing::narrow(dtype, kernels_test::element<float>(master, i));
      std::memcpy(parameter.data() + 2 * i, &bits, 2);
    }
  }

  bool has_master() const { return dtype == DType::f16 || dtype == DType::bf16; }
  std::size_t state_size() const { return dtype == DType::f64 ? 8 : 4; }

  // Updates [begin, end) in memory that starts `shift` elements behind an aligned address.
  void update_range(const Rule& rule, std::size_t begin, std::size_t end, std::size_t shift, double scale) {
    const std::size_t size = element_size(dtype);
    Moved g(gradient, begin * size, end * size, shift * size), w(parameter, begin * size, end * size, shift * size);
    Moved m(master, begin * 4, end * 4, shift * 4);
    Moved s0(states[0], begin * state_size(), end * state_size(), shift * state_size());
    Moved s1(states[1], begin * state_size(), end * state_size(), 0);
    Moved s2(states[2], begin * state_size(), end * state_size(), shift * state_size());
    const std::byte* const rank = g.data();
    update(rule, {.gradients = {.dtype = dtype, .ranks = std::span(&rank, 1)},
                  .scale = scale,
                  .parameter = w.data(),
                  .master = has_master() ? reinterpret_cast<float*>(m.data()) : nullptr,
                  .states = {s0.data(), s1.data(), s2.data()},
                  .count = end - begin});
  }

  bool same_bits(const Memory& other) const {
    return parameter == other.parameter && (!has_master() || master == other.master) && states == other.states;
  }

  // A copy of a range at a shifted address, which is copied back in the end; what is around it must stay untouched.
  class Moved {
   public:
    Moved(Bytes& home, std::size_t begin, std::size_t end, std::size_t shift)
        : home_(home), begin_(begin), bytes_(end - begin), memory_(bytes_ + shift + 192, std::byte{0xa5}) {
      start_ = 64 - reinterpret_cast<std::uintptr_t>(memory_.data()) % 64 + shift;
      std::copy_n(home.begin() + static_cast<long>(begin), bytes_, memory_.begin() + static_cast<long>(start_));
    }
    ~Moved() {
      std::copy_n(memory_.begin() + static_cast<long>(start_), bytes_, home_.begin() + static_cast<long>(begin_));
      for (std::size_t i = 0; i < memory_.size(); ++i) {
        if (i >= start_ && i < start_ + bytes_) continue;
        if (memory_[i] != std::byte{0xa5}) ADD_FAILURE() << "wrote outside of the shard";
      }
    }
    std::byte* data() { return memory_.data() + start_; }

   private:
    Bytes& home_;
    std::size_t begin_, bytes_, start_ = 0;
    Bytes memory_;
  };

  DType dtype;
  std::size_t count;
  Bytes gradient, parameter, master;
  std::array<Bytes, kMaxStates> states;
};

Memory reference_of(const Rule& rule, Memory memory, double scale) {
  testing::update_by_hand(rule, memory.dtype, memory.gradient, scale, memory.parameter, memory.master, memory.states,
                          memory.count);
  return memory;
}

// Everything runs once on each instruction set that this machine has, and all must give the bits of the reference.
class OptimKernels : public ::testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

INSTANTIATE_TEST_SUITE_P(Targets, OptimKernels, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

TEST_P(OptimKernels, RunOnTheTargetAskedFor) { EXPECT_STREQ(update_target(), hwy::TargetName(GetParam())); }

TEST_P(OptimKernels, EveryRuleAndTypeHasTheBitsOfTheReference) {
  for (DType dtype : kDTypes) {
    for (std::size_t r = 0; r < rules().size(); ++r) {
      Memory memory(dtype, 2311, 100 * r);
      const Memory want = reference_of(rules()[r], memory, 0.37);
      memory.update_range(rules()[r], 0, memory.count, r % 16, 0.37);
      ASSERT_TRUE(memory.same_bits(want)) << to_string(dtype) << " rule " << r;
    }
  }
}

TEST_P(OptimKernels, AnySplitAlignmentAndTailHasTheSameBits) {
  std::mt19937_64 random(5);
  for (DType dtype : kDTypes) {
    for (std::size_t r = 0; r < rules().size(); ++r) {
      const Memory start(dtype, 301, 7 * r);
      Memory whole = start;
      whole.update_range(rules()[r], 0, start.count, 0, 1);
      for (int attempt = 0; attempt < 4; ++attempt) {
        Memory split = start;
        for (std::size_t begin = 0; begin < split.count;) {
          const std::size_t end = std::min(split.count, begin + 1 + random() % (attempt % 2 == 0 ? 9 : 90));
          split.update_range(rules()[r], begin, end, random() % 16, 1);
          begin = end;
        }
        ASSERT_TRUE(split.same_bits(whole)) << to_string(dtype) << " rule " << r;
      }
    }
  }
}

TEST_P(OptimKernels, GradientsOfSeveralRanksAreReducedAsAnAllReduceDoes) {
  for (DType dtype : kDTypes) {
    for (std::size_t ranks : {2, 3, 5}) {
      const Rule rule = AdamRule{.lr = 1e-3, .weight_decay = 0.1, .decoupled = true, .step = 2};
      Memory want(dtype, 5003, ranks), got = want;
      std::vector<Bytes> gradients;
      std::vector<const std::byte*> from;
      for (std::size_t k = 0; k < ranks; ++k) gradients.push_back(kernels_test::hard_inputs(dtype, want.count, 50 + k));
      for (const Bytes& gradient : gradients) from.push_back(gradient.data());
      std::byte* total = want.gradient.data();
      reduce(dtype, ReduceOp::sum, from, std::span(&total, 1), want.count, static_cast<int>(ranks));
      want.update_range(rule, 0, want.count, 0, 0.5);

      std::vector<double> sums(norm_blocks(want.count)), reduced_sums(sums.size());
      const Gradients all{.dtype = dtype, .ranks = from, .divisor = static_cast<int>(ranks)};
      update(rule, {.gradients = all,
                    .scale = 0.5,
                    .parameter = got.parameter.data(),
                    .master = got.has_master() ? reinterpret_cast<float*>(got.master.data()) : nullptr,
                    .states = {got.states[0].data(), got.states[1].data(), nullptr},
                    .count = got.count});
      ASSERT_TRUE(got.same_bits(want)) << to_string(dtype) << " ranks " << ranks;
      square_sums(all, got.count, sums);
      const std::byte* const reduced = want.gradient.data();
      square_sums({.dtype = dtype, .ranks = std::span(&reduced, 1)}, got.count, reduced_sums);
      EXPECT_EQ(std::memcmp(sums.data(), reduced_sums.data(), sums.size() * sizeof(double)), 0);
    }
  }
}

TEST_P(OptimKernels, NormsAreSummedInFixedBlocksAndLanes) {
  for (DType dtype : kDTypes) {
    for (std::size_t count : {1, 15, 16, 17, 4095, 4096, 4097, 10'000}) {
      const Bytes bytes = testing::ordinary_numbers(dtype, count, count);
      const std::byte* const from = bytes.data();
      std::vector<double> sums(norm_blocks(count));
      square_sums({.dtype = dtype, .ranks = std::span(&from, 1)}, count, sums);
      EXPECT_EQ(sums, testing::square_sums_by_hand(dtype, bytes, count)) << to_string(dtype) << " " << count;
      // A shard that begins at the second block has the sums of the whole.
      if (count <= kNormBlock) continue;
      const std::byte* const second = from + kNormBlock * element_size(dtype);
      std::vector<double> rest(sums.size() - 1);
      square_sums({.dtype = dtype, .ranks = std::span(&second, 1)}, count - kNormBlock, rest);
      EXPECT_TRUE(std::equal(rest.begin(), rest.end(), sums.begin() + 1));
    }
  }
}

TEST(MasterWeights, AreReplacedIfTheParameterWasWritten) {
  const Rule rule = SgdRule{.lr = 0.5};
  std::uint16_t parameter[2] = {0x3f80, 0x4000};  // 1 and 2 in bf16
  float master[2] = {1.001f, 7.0f};               // 1.001 rounds to 1; 7 does not round to 2
  const std::uint16_t gradient[2] = {0, 0};
  const auto* const from = reinterpret_cast<const std::byte*>(gradient);
  update(rule, {.gradients = {.dtype = DType::bf16, .ranks = std::span(&from, 1)},
                .parameter = reinterpret_cast<std::byte*>(parameter),
                .master = master,
                .count = 2});
  EXPECT_EQ(master[0], 1.001f);
  EXPECT_EQ(master[1], 2.0f);
  EXPECT_EQ(parameter[1], 0x4000);
}

}  // namespace
}  // namespace lockstep::optim
