#include "conformance/call.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

namespace lockstep::conformance {
namespace {

using kernels_test::Bytes;

// Elements before the first one: buffers are aligned to their element, not to more.
constexpr std::size_t kLead = 3;
constexpr std::size_t kGuardBytes = 192;  // around the largest buffer
constexpr std::byte kUntouched{0xa5};

// The shape of a call for one rank, in elements. In place, input and output share a buffer and begin
// at their offsets there; otherwise both offsets are 0.
struct Shape {
  std::size_t input = 0;
  std::size_t output = 0;
  std::size_t input_offset = 0;
  std::size_t output_offset = 0;
  std::vector<std::size_t> counts = {};  // all_gather_v
};

std::vector<std::size_t> unequal_counts(std::size_t longest, std::size_t ranks) {
  std::vector<std::size_t> counts;
  for (std::size_t rank = 0; rank < ranks; ++rank) counts.push_back(rank % 3 == 2 ? 0 : longest / (rank + 1));
  return counts;
}

Shape shape_of(const Call& call, std::size_t me, std::size_t ranks) {
  const std::size_t one = call.count;
  const bool is_root = me == static_cast<std::size_t>(call.root);
  switch (call.kind) {
    case Kind::all_reduce:
    case Kind::broadcast: return {one, one};
    case Kind::reduce: return {one, is_root ? one : 0};
    case Kind::reduce_scatter: return {ranks * one, one, 0, me * one};
    case Kind::all_gather: return {one, ranks * one, me * one, 0};
    case Kind::gather: return {one, is_root ? ranks * one : 0, is_root ? me * one : 0, 0};
    case Kind::scatter: return {is_root ? ranks * one : 0, one, 0, is_root ? me * one : 0};
    case Kind::all_to_all: return {ranks * one, ranks * one};
    case Kind::all_gather_v: {
      auto counts = unequal_counts(one, ranks);
      const auto mine = counts.begin() + static_cast<std::ptrdiff_t>(me);
      const std::size_t before = std::accumulate(counts.begin(), mine, std::size_t{0});
      const std::size_t all = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
      return {*mine, all, before, 0, std::move(counts)};
    }
  }
  return {};
}

// Elements [begin, begin + count) of the endless repetition of `period`.
void repeat(const Bytes& period, std::size_t element, std::size_t begin, std::size_t count, std::byte* to) {
  std::size_t at = begin % kPeriod;
  while (count > 0) {
    const std::size_t run = std::min(count, kPeriod - at);
    std::memcpy(to, period.data() + at * element, run * element);
    to += run * element;
    count -= run;
    at = 0;
  }
}

// What `me` must get, written to `to`.
void write_expected(const Call& call, std::size_t me, Values& values, const Shape& shape, std::byte* to) {
  const std::size_t element = element_size(call.dtype);
  const std::size_t one = call.count;
  const auto ranks = static_cast<std::size_t>(values.ranks());
  const auto of = [&](std::size_t rank) -> const Bytes& { return values.of(static_cast<int>(rank), call.dtype); };
  const auto root = static_cast<std::size_t>(call.root);
  switch (call.kind) {
    case Kind::all_reduce:
    case Kind::reduce: return repeat(values.reduced(call.dtype, call.op), element, 0, shape.output, to);
    case Kind::reduce_scatter: return repeat(values.reduced(call.dtype, call.op), element, me * one, one, to);
    case Kind::broadcast: return repeat(of(root), element, 0, one, to);
    case Kind::scatter: return repeat(of(root), element, me * one, one, to);
    case Kind::all_gather:
    case Kind::gather:
      for (std::size_t rank = 0; rank < ranks && shape.output > 0; ++rank) {
        repeat(of(rank), element, 0, one, to + rank * one * element);
      }
      return;
    case Kind::all_gather_v:
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        repeat(of(rank), element, 0, shape.counts[rank], to);
        to += shape.counts[rank] * element;
      }
      return;
    case Kind::all_to_all:
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        repeat(of(rank), element, me * one, one, to + rank * one * element);
      }
      return;
  }
}

void issue(Communicator& group, const Call& call, ConstBuffer input, Buffer output, const Shape& shape) {
  const ReduceOptions reduce_options{.op = call.op};
  switch (call.kind) {
    case Kind::all_reduce: return group.all_reduce(input, output, reduce_options);
    case Kind::reduce: return group.reduce(input, output, call.root, reduce_options);
    case Kind::reduce_scatter: return group.reduce_scatter(input, output, reduce_options);
    case Kind::broadcast: return group.broadcast(output, call.root);
    case Kind::all_gather: return group.all_gather(input, output);
    case Kind::all_gather_v: return group.all_gather_v(input, output, shape.counts);
    case Kind::gather: return group.gather(input, output, call.root);
    case Kind::scatter: return group.scatter(input, output, call.root);
    case Kind::all_to_all: return group.all_to_all(input, output);
  }
}

bool input_is_registered(Memory memory, int rank) {
  return memory == Memory::registered || memory == Memory::only_input_registered ||
         (memory == Memory::some_ranks_registered && rank % 2 == 1);
}
bool output_is_registered(Memory memory, int rank) {
  return memory != Memory::only_input_registered && input_is_registered(memory, rank);
}

}  // namespace

std::string to_string(Kind kind) {
  constexpr const char* kNames[] = {"all_reduce",   "reduce", "reduce_scatter", "broadcast", "all_gather",
                                    "all_gather_v", "gather", "scatter",        "all_to_all"};
  return kNames[static_cast<int>(kind)];
}

bool reduces(Kind kind) { return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter; }

std::string describe(const Call& call) {
  constexpr const char* kMemory[] = {"private", "registered", "some ranks registered", "only input registered"};
  return fmt::format("{}({} x {}, {}, root {}, {}, {})", to_string(call.kind), call.count,
                     lockstep::to_string(call.dtype), lockstep::to_string(call.op), call.root,
                     call.in_place ? "in place" : "out of place", kMemory[static_cast<int>(call.memory)]);
}

Bytes Values::make(int rank, DType dtype) const {
  const std::uint64_t seed = seed_ * 1000 + static_cast<std::uint64_t>(rank);
  if (hard_) return kernels_test::hard_inputs(dtype, kPeriod, seed);
  // 0, 1 or 2 in each format: the bits of the numbers as they are in it.
  constexpr std::uint64_t kBits[][3] = {{0, 0x3f800000, 0x40000000},
                                        {0, 0x3ff0000000000000, 0x4000000000000000},
                                        {0, 0x3c00, 0x4000},
                                        {0, 0x3f80, 0x4000},
                                        {0, 1, 2}};
  const std::size_t size = element_size(dtype);
  const auto* bits = kBits[std::min<std::size_t>(static_cast<std::size_t>(dtype), 4)];
  std::mt19937_64 random(seed);
  Bytes bytes(kPeriod * size);
  for (std::size_t i = 0; i < kPeriod; ++i) std::memcpy(bytes.data() + i * size, &bits[random() % 3], size);
  return bytes;
}

const Bytes& Values::of(int rank, DType dtype) {
  const std::lock_guard lock(mutex_);
  auto& bytes = values_[{rank, dtype}];
  if (bytes.empty()) bytes = make(rank, dtype);
  return bytes;
}

const Bytes& Values::reduced(DType dtype, ReduceOp op) {
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < ranks_; ++rank) inputs.push_back(of(rank, dtype));
  const std::lock_guard lock(mutex_);
  auto& bytes = reduced_[{dtype, op}];
  if (bytes.empty()) {
    bytes = kernels_test::expected(dtype, op, inputs, kPeriod, op == ReduceOp::avg ? ranks_ : 1);
  }
  return bytes;
}

TestBuffers::TestBuffers(Communicator& group, std::size_t max_bytes)
    : private_input_(max_bytes + kGuardBytes),
      private_output_(max_bytes + kGuardBytes),
      registered_input_(group.allocate(max_bytes + kGuardBytes)),
      registered_output_(group.allocate(max_bytes + kGuardBytes)) {}

std::size_t largest_buffer(const Call& call, int size) {
  return call.count * element_size(call.dtype) * static_cast<std::size_t>(size);
}

Bytes run_and_check(Communicator& group, const Call& call, Values& values, TestBuffers& buffers, bool exact) {
  const auto me = static_cast<std::size_t>(group.rank());
  const std::size_t element = element_size(call.dtype);
  const bool shared = call.in_place || call.kind == Kind::broadcast;
  const Shape shape = shape_of(call, me, static_cast<std::size_t>(group.size()));
  const bool registered_input = input_is_registered(call.memory, group.rank());
  const bool registered_output = output_is_registered(call.memory, group.rank());

  std::byte* const input_memory = buffers.input(registered_input);
  std::byte* const output_memory = shared ? input_memory : buffers.output(registered_output);
  const std::size_t input_at = (kLead + (shared ? shape.input_offset : 0)) * element;
  const std::size_t output_at = (kLead + (shared ? shape.output_offset : 0)) * element;
  const std::size_t buffer_bytes = std::max(input_at + shape.input * element, output_at + shape.output * element) + 64;
  const std::size_t output_bytes = shape.output * element;

  std::fill_n(output_memory, buffer_bytes, kUntouched);
  std::fill_n(input_memory, buffer_bytes, kUntouched);
  // A broadcast reads on the root only; what the others hold must not matter.
  if (call.kind != Kind::broadcast || static_cast<int>(me) == call.root) {
    repeat(values.of(group.rank(), call.dtype), element, 0, shape.input, input_memory + input_at);
  }
  Bytes expected_input(input_memory, input_memory + buffer_bytes);
  Bytes expected_output(output_memory, output_memory + buffer_bytes);

  issue(group, call, ConstBuffer(input_memory + input_at, shape.input, call.dtype),
        Buffer(output_memory + output_at, shape.output, call.dtype), shape);

  Bytes result(output_memory + output_at, output_memory + output_at + output_bytes);
  Bytes& changed = shared ? expected_input : expected_output;
  if (exact) {
    write_expected(call, me, values, shape, changed.data() + output_at);
  } else {
    std::copy(result.begin(), result.end(), changed.begin() + static_cast<std::ptrdiff_t>(output_at));
  }
  const auto first_difference = [&](const Bytes& expected, const std::byte* actual) {
    const auto at = std::mismatch(expected.begin(), expected.end(), actual).first;
    return at == expected.end() ? -1 : at - expected.begin();
  };
  if (!shared) {
    const auto at = first_difference(expected_output, output_memory);
    EXPECT_EQ(at, -1) << describe(call) << " on rank " << me << ": wrong byte in the output buffer, which has "
                      << output_bytes << " from byte " << output_at;
  }
  const auto at = first_difference(expected_input, input_memory);
  EXPECT_EQ(at, -1) << describe(call) << " on rank " << me << ": wrong byte in the "
                    << (shared ? "buffer of input and output: output has " : "input buffer: output has ")
                    << output_bytes << " from byte " << output_at;
  return result;
}

}  // namespace lockstep::conformance
