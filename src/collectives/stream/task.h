// What the stream algorithms work on: a buffer, and the ranks that share the work on it.
//
// The plain algorithms run over all ranks of the group on the whole buffer; the hierarchical one
// runs them between the hosts on the chunks of local ranks. Both pass a StreamTask.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "collectives/context.h"
#include "collectives/stream/header.h"
#include "transport/stream/stream_transport.h"
#include "transport/wait_scope.h"

namespace lockstep {

// Does not own what it points to. Indices (`me`, `root`) count in `ranks`; count, input and output
// mean what they mean in CollectiveCall.
struct StreamTask {
  OpDescriptor descriptor;     // of the whole operation, for the header
  std::span<const int> ranks;  // ranks of the group that take part, in the order of reduction
  std::size_t me = 0;
  std::size_t root = 0;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t count = 0;
  std::span<const std::size_t> counts;  // all_gather_v
  int divisor = 1;                      // > 1: the reduced value is divided by it, once
  std::uint16_t chunk = 0;              // as in StreamHeader
  std::uint16_t chunks = 0;

  std::size_t size() const { return ranks.size(); }
  int rank_at(std::size_t index) const { return ranks[index]; }
  // The rank `distance` places to the right (or left) of this one in the ring of `ranks`.
  int right(std::size_t distance = 1) const { return ranks[(me + distance) % size()]; }
  int left(std::size_t distance = 1) const { return ranks[(me + size() - distance % size()) % size()]; }
  std::size_t element_bytes() const { return element_size(descriptor.dtype); }
  std::size_t bytes() const { return count * element_bytes(); }
};

// A run of elements in a buffer, as bytes.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t size = 0;
  std::size_t end() const { return begin + size; }
};

// Chunk `index` of `chunks` chunks of a buffer: sizes differ by at most one element.
inline ByteRange chunk_of(std::size_t count, std::size_t element_bytes, std::size_t chunks, std::size_t index) {
  const std::size_t base = count / chunks;
  const std::size_t longer = count % chunks;
  const std::size_t begin = index * base + std::min(index, longer);
  return {begin * element_bytes, (base + (index < longer ? 1 : 0)) * element_bytes};
}

// Where the chunk of the rank at `index` is in the output of an all_gather or all_gather_v.
ByteRange gathered_chunk(const StreamTask& task, std::size_t index);

// All ranks of the group, the whole buffer; avg divides by the size of the group. `all_ranks` holds
// 0, 1, ... and must live as long as the task.
StreamTask whole_group(const CollectiveCall& call, int rank, std::span<const int> all_ranks);

// Starts the operation on the transport.
void begin_task(StreamTransport& streams, const StreamTask& task, StreamAlgorithm algorithm);

// srcs[0] op srcs[1] -> dst for `bytes` bytes, divided by `divisor`.
void reduce_two(const StreamTask& task, const std::byte* first, const std::byte* second, std::byte* dst,
                std::size_t bytes, int divisor);

// A reduction in which only one rank takes part.
void reduce_alone(const StreamTask& task);

}  // namespace lockstep
