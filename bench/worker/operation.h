// The operations of a benchmark: the types that the driver and the workers share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "lockstep/collectives/types.h"

namespace lockstep::bench {

enum class Collective : std::uint8_t { all_reduce, broadcast, all_gather, reduce_scatter, barrier };
inline constexpr std::array kCollectives = {Collective::all_reduce, Collective::broadcast, Collective::all_gather,
                                            Collective::reduce_scatter, Collective::barrier};
// The memory of an engine's buffers: allocated by the engine itself (registered), or by the benchmark.
enum class Memory : std::uint8_t { registered, private_memory };

constexpr std::string_view to_string(Collective collective) {
  constexpr std::string_view kNames[] = {"all_reduce", "broadcast", "all_gather", "reduce_scatter", "barrier"};
  return kNames[static_cast<std::size_t>(collective)];
}
constexpr std::string_view to_string(Memory memory) { return memory == Memory::registered ? "registered" : "private"; }

constexpr bool reduces(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter;
}

inline constexpr int kRoot = 0;  // of broadcast

// Sizes as nccl-tests counts them: `bytes` is the larger of a rank's input and output.
struct Shape {
  std::size_t bytes = 0;         // what algbw is computed from
  std::size_t input_count = 0;   // elements that each rank contributes
  std::size_t output_count = 0;  // elements that each rank receives
  bool in_place = true;
};
// The shape whose size is nearest to `bytes`: at least one element (of each rank), whole elements.
Shape shape_of(Collective collective, DType dtype, int ranks, std::size_t bytes);

// One call, with its buffers. In place: input == output.
struct Operation {
  Collective collective = Collective::all_reduce;
  DType dtype = DType::f32;
  Shape shape;
  void* input = nullptr;
  void* output = nullptr;
};

}  // namespace lockstep::bench
