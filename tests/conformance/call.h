// One collective as the suite calls it: what to run, on what values, and what must come out.
//
// Rank r's elements repeat every kPeriod: element i of its buffer is value i mod kPeriod of a list
// of hard values (huge, tiny, NaN with payload, infinities, -0, subnormals) that depends on r and
// the dtype. So the expected result is known from kPeriod elements, at any count; and as kPeriod is
// a prime, bytes that land in the wrong place are detected.
#pragma once

#include <lockstep/communicator/communicator.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/testing/reference_kernels.h"

namespace lockstep::conformance {

inline constexpr std::size_t kPeriod = 1009;

enum class Kind {
  all_reduce,
  reduce,
  reduce_scatter,
  broadcast,
  all_gather,
  all_gather_v,
  gather,
  scatter,
  all_to_all,
};
std::string to_string(Kind kind);
bool reduces(Kind kind);

// Where the buffers are.
enum class Memory { private_memory, registered, some_ranks_registered, only_input_registered };

struct Call {
  Kind kind = Kind::all_reduce;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  std::size_t count = 0;  // as in the descriptor: elements per rank (all_gather_v: of the longest)
  int root = 0;
  bool in_place = false;
  Memory memory = Memory::private_memory;
};
std::string describe(const Call& call);

// Lists of values by (rank, dtype) and what they reduce to. Thread-safe.
class Values {
 public:
  // `seed` makes other values; `hard`: see above, otherwise small whole numbers, whose sums and
  // products are exact in any order (and in f16, for few ranks).
  Values(int ranks, std::uint64_t seed, bool hard) : ranks_(ranks), seed_(seed), hard_(hard) {}

  int ranks() const { return ranks_; }
  // kPeriod elements each.
  const kernels_test::Bytes& of(int rank, DType dtype);
  // All ranks' values reduced in rank order.
  const kernels_test::Bytes& reduced(DType dtype, ReduceOp op);

 private:
  kernels_test::Bytes make(int rank, DType dtype) const;

  const int ranks_;
  const std::uint64_t seed_;
  const bool hard_;
  std::mutex mutex_;  // entries never move or change once made
  std::map<std::pair<int, DType>, kernels_test::Bytes> values_;
  std::map<std::pair<DType, ReduceOp>, kernels_test::Bytes> reduced_;
};

// The memory of one rank for calls of up to `max_bytes` per buffer: private and registered.
class TestBuffers {
 public:
  TestBuffers(Communicator& group, std::size_t max_bytes);
  std::byte* input(bool registered) { return registered ? registered_input_->data() : private_input_.data(); }
  std::byte* output(bool registered) { return registered ? registered_output_->data() : private_output_.data(); }

 private:
  kernels_test::Bytes private_input_;
  kernels_test::Bytes private_output_;
  std::shared_ptr<RegisteredMemory> registered_input_;
  std::shared_ptr<RegisteredMemory> registered_output_;
};

// The largest size of an input or output of the call, in bytes.
std::size_t largest_buffer(const Call& call, int size);

// Runs the call on this rank and checks its result, that its input (out of place) is unchanged and
// that nothing was written beyond the output. With `exact` unset a reduction's values are not
// compared. Returns the bytes of the output (empty if this rank has none).
kernels_test::Bytes run_and_check(Communicator& group, const Call& call, Values& values, TestBuffers& buffers,
                                  bool exact);

}  // namespace lockstep::conformance
