// The loops over elements, for any element format and operation.
// Included once per instruction set: the guard toggles.
//
// A Format defines how elements are stored in memory (Element) and in which type they are combined (Accumulator):
//   load(d, const Element*) -> vector of Accumulator;   store(vector of Accumulator, d, Element*)
// Every loop has a body of whole vectors and a tail of vectors of one element, from one template, so
// that an element gets the same operations at every position.
//
// Two ways through the sources:
//   fused    2 to 4 sources, 1 or 2 destinations: everything stays in registers;
//   blocked  any number: a block of totals stays in L1 while the sources are added in groups, so each
//            source and each destination is still accessed once in memory.
#if defined(LOCKSTEP_KERNELS_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_LOOPS_INL_H_
#undef LOCKSTEP_KERNELS_LOOPS_INL_H_
#else
#define LOCKSTEP_KERNELS_LOOPS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "collectives/kernels/call.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Elements whose type is also the type of the sum.
template <typename T>
struct Plain {
  using Element = T;
  using Accumulator = T;
  template <class D>
  static HWY_INLINE hn::VFromD<D> load(D d, const Element* from) {
    return hn::LoadU(d, from);
  }
  template <class D>
  static HWY_INLINE void store(hn::VFromD<D> v, D d, Element* to) {
    hn::StoreU(v, d, to);
  }
};

constexpr std::size_t kBlockBytes = std::size_t{8} << 10;

// The pointers of one group of sources; their number is known to the compiler.
template <class Format, class Op, std::size_t kSrcs>
struct Sources {
  using Element = typename Format::Element;
  const Element* at[kSrcs];

  Sources(const std::byte* const* srcs, std::size_t offset) {
    for (std::size_t k = 0; k < kSrcs; ++k) at[k] = reinterpret_cast<const Element*>(srcs[k]) + offset;
  }

  // at[0] op at[1] op ...
  template <class D>
  HWY_INLINE hn::VFromD<D> combined(D d, std::size_t i) const {
    return append<1>(d, Format::load(d, at[0] + i), i);
  }
  // total op at[kFrom] op ...
  template <std::size_t kFrom, class D>
  HWY_INLINE hn::VFromD<D> append(D d, hn::VFromD<D> total, std::size_t i) const {
    if constexpr (kFrom == kSrcs) {
      return total;
    } else {
      return append<kFrom + 1>(d, Op::combine(total, Format::load(d, at[kFrom] + i)), i);
    }
  }
};

template <class Format, class Op, std::size_t kSrcs, bool kTwoDsts, class Finish>
struct Fused {
  using Element = typename Format::Element;
  using Accumulator = typename Format::Accumulator;
  Sources<Format, Op, kSrcs> srcs;
  Element* dst0;
  Element* dst1;
  Finish finish;

  template <class D>
  HWY_INLINE void store(hn::VFromD<D> v, D d, std::size_t i) const {
    Format::store(v, d, dst0 + i);
    if constexpr (kTwoDsts) Format::store(v, d, dst1 + i);
  }

  HWY_INLINE void run(std::size_t count) const {
    const hn::ScalableTag<Accumulator> d;
    const std::size_t width = hn::Lanes(d);
    std::size_t i = 0;
    // If elements are converted, four times the code is no faster and takes twice as long to compile.
    if constexpr (sizeof(Element) == sizeof(Accumulator)) {
      for (; i + 4 * width <= count; i += 4 * width) {
        const auto v0 = finish.apply(d, srcs.combined(d, i));
        const auto v1 = finish.apply(d, srcs.combined(d, i + width));
        const auto v2 = finish.apply(d, srcs.combined(d, i + 2 * width));
        const auto v3 = finish.apply(d, srcs.combined(d, i + 3 * width));
        store(v0, d, i);
        store(v1, d, i + width);
        store(v2, d, i + 2 * width);
        store(v3, d, i + 3 * width);
      }
    }
    for (; i + width <= count; i += width) store(finish.apply(d, srcs.combined(d, i)), d, i);
    const hn::CappedTag<Accumulator, 1> d1;
    for (; i < count; ++i) store(finish.apply(d1, srcs.combined(d1, i)), d1, i);
  }
};

template <class Format, class Op, std::size_t kSrcs, class Finish>
void run_fused(const KernelCall& call, std::size_t offset, std::size_t count, Finish finish) {
  using Element = typename Format::Element;
  Element* dst0 = reinterpret_cast<Element*>(call.dsts[0]) + offset;
  const Sources<Format, Op, kSrcs> srcs(call.srcs.data(), offset);
  if (call.dsts.size() == 1) {
    Fused<Format, Op, kSrcs, false, Finish>{srcs, dst0, nullptr, finish}.run(count);
  } else {
    Element* dst1 = reinterpret_cast<Element*>(call.dsts[1]) + offset;
    Fused<Format, Op, kSrcs, true, Finish>{srcs, dst0, dst1, finish}.run(count);
  }
}

// Copies what dsts[0] holds to dsts[first], dsts[first + 1], ...
template <typename Element>
void copy_to_others(const KernelCall& call, std::size_t first, std::size_t offset, std::size_t count) {
  const std::size_t start = offset * sizeof(Element);
  for (std::size_t k = first; k < call.dsts.size(); ++k) {
    std::memcpy(call.dsts[k] + start, call.dsts[0] + start, count * sizeof(Element));
  }
}

// 2, 3 or 4 sources.
template <class Format, class Op, class Finish>
void reduce_fused(const KernelCall& call, Finish finish) {
  using Element = typename Format::Element;
  const std::size_t block = call.dsts.size() <= 2 ? call.count : kBlockBytes / sizeof(Element);
  for (std::size_t offset = 0; offset < call.count; offset += block) {
    const std::size_t count = std::min(block, call.count - offset);
    switch (call.srcs.size()) {
      case 2: run_fused<Format, Op, 2>(call, offset, count, finish); break;
      case 3: run_fused<Format, Op, 3>(call, offset, count, finish); break;
      default: run_fused<Format, Op, 4>(call, offset, count, finish); break;
    }
    copy_to_others<Element>(call, 2, offset, count);
  }
}

template <class Format, class Op>
struct Blocked {
  using Element = typename Format::Element;
  using Accumulator = typename Format::Accumulator;
  static constexpr std::size_t kBlock = kBlockBytes / sizeof(Accumulator);

  // totals = srcs[0] op ... (kFirst), or totals = totals op srcs[0] op ...
  template <std::size_t kSrcs, bool kFirst>
  static void add(const std::byte* const* srcs, std::size_t offset, std::size_t count,
                  Accumulator* HWY_RESTRICT totals) {
    const Sources<Format, Op, kSrcs> group(srcs, offset);
    const hn::ScalableTag<Accumulator> d;
    const std::size_t width = hn::Lanes(d);
    std::size_t i = 0;
    for (; i + 2 * width <= count; i += 2 * width) {
      const auto v0 = step<kFirst>(d, group, totals, i);
      const auto v1 = step<kFirst>(d, group, totals, i + width);
      hn::StoreU(v0, d, totals + i);
      hn::StoreU(v1, d, totals + i + width);
    }
    const hn::CappedTag<Accumulator, 1> d1;
    for (; i < count; ++i) hn::StoreU(step<kFirst>(d1, group, totals, i), d1, totals + i);
  }

  template <bool kFirst, class D, class Group>
  static HWY_INLINE hn::VFromD<D> step(D d, const Group& group, const Accumulator* totals, std::size_t i) {
    if constexpr (kFirst) {
      return group.combined(d, i);
    } else {
      return group.template append<0>(d, hn::LoadU(d, totals + i), i);
    }
  }

  template <class Finish>
  static void finish_block(const Accumulator* HWY_RESTRICT totals, std::size_t count, Element* dst, Finish finish) {
    const hn::ScalableTag<Accumulator> d;
    const std::size_t width = hn::Lanes(d);
    std::size_t i = 0;
    for (; i + width <= count; i += width) Format::store(finish.apply(d, hn::LoadU(d, totals + i)), d, dst + i);
    const hn::CappedTag<Accumulator, 1> d1;
    for (; i < count; ++i) Format::store(finish.apply(d1, hn::LoadU(d1, totals + i)), d1, dst + i);
  }

  static void add_all(const KernelCall& call, std::size_t offset, std::size_t count, Accumulator* totals) {
    const std::byte* const* srcs = call.srcs.data();
    std::size_t done = call.srcs.size() >= 4 ? 4 : call.srcs.size() >= 2 ? 2 : 1;
    switch (done) {
      case 4: add<4, true>(srcs, offset, count, totals); break;
      case 2: add<2, true>(srcs, offset, count, totals); break;
      default: add<1, true>(srcs, offset, count, totals); break;
    }
    for (; call.srcs.size() - done >= 4; done += 4) add<4, false>(srcs + done, offset, count, totals);
    for (; call.srcs.size() - done >= 2; done += 2) add<2, false>(srcs + done, offset, count, totals);
    if (call.srcs.size() - done == 1) add<1, false>(srcs + done, offset, count, totals);
  }

  // `divide(elements, count)` is called on each block of results, for what is not done on vectors of Accumulator.
  template <class Finish, class Divide>
  static void run(const KernelCall& call, Finish finish, Divide divide) {
    HWY_ALIGN Accumulator totals[kBlock];
    Element* dst = reinterpret_cast<Element*>(call.dsts[0]);
    for (std::size_t offset = 0; offset < call.count; offset += kBlock) {
      const std::size_t count = std::min(kBlock, call.count - offset);
      add_all(call, offset, count, totals);
      finish_block(totals, count, dst + offset, finish);
      divide(dst + offset, count);
      copy_to_others<Element>(call, 1, offset, count);
    }
  }
};

struct DivideNothing {
  template <typename Element>
  HWY_INLINE void operator()(Element*, std::size_t) const {}
};

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#endif
