#include "collectives/hierarchical.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/rank_array.h"
#include "collectives/chunks.h"
#include "collectives/host/entry.h"
#include "collectives/host/staging.h"
#include "collectives/kernels/kernels.h"
#include "collectives/stream/algorithms.h"

namespace lockstep {
namespace {

// The two halves of the staging memory: what owners are to reduce, and what they have reduced.
constexpr std::size_t kInputHalf = 0;
constexpr std::size_t kResultHalf = 1;

class Hierarchical {
 public:
  Hierarchical(const CollectiveCall& call, CollectiveContext& context)
      : call_(call),
        context_(context),
        local_size_(static_cast<std::size_t>(context.host.local_size())),
        me_(static_cast<std::size_t>(context.host.local_rank())),
        element_(call.element_bytes()),
        owners_(smallest_host(context.topology)),
        layout_(owners_, kStagingBytes / 2),
        segment_elements_(layout_.segment_bytes() / element_) {
    if (me_ >= owners_) return;
    for (const auto& ranks : context.topology.hosts) column_.push_back(ranks[me_]);
  }

  Status run() {
    const std::size_t bytes = call_.count() * element_;
    LOCKSTEP_RETURN_IF_ERROR(host_announce_memory(call_, context_, bytes, bytes, false));
    const std::size_t longest = aligned_chunk(call_.count(), owners_, 0, element_).count;
    const std::size_t segments = (longest + segment_elements_ - 1) / segment_elements_;
    return all_registered() ? run_in_place(segments, bytes) : run_staged(segments);
  }

 private:
  static std::size_t smallest_host(const Topology& topology) {
    std::size_t smallest = topology.hosts.front().size();
    for (const auto& ranks : topology.hosts) smallest = std::min(smallest, ranks.size());
    return smallest;
  }
  bool owns() const { return me_ < owners_; }
  bool all_registered() const {
    for (int rank = 0; rank < static_cast<int>(local_size_); ++rank) {
      if (!announced_input(context_, rank).registered() || !announced_output(context_, rank).registered()) return false;
    }
    return true;
  }
  // Segment `index` of an owner's chunk, in elements of the whole buffer.
  ElementRange segment(std::size_t owner, std::size_t index) const {
    const ElementRange whole = aligned_chunk(call_.count(), owners_, owner, element_);
    const std::size_t begin = std::min(whole.count, index * segment_elements_);
    return ElementRange{whole.begin + begin, std::min(segment_elements_, whole.count - begin)};
  }
  std::byte* staging(std::size_t rank) const { return context_.host.staging(static_cast<int>(rank)); }

  // Step 2, on my output.
  Status between_hosts(const ElementRange& range) {
    std::byte* data = call_.output + range.begin * element_;
    StreamTask task{.descriptor = call_.descriptor,
                    .ranks = column_,
                    .me = static_cast<std::size_t>(context_.topology.me().host_index),
                    .input = data,
                    .output = data,
                    .count = range.count,
                    .counts = {},
                    .divisor = divisor_of(call_, context_),
                    .chunk = static_cast<std::uint16_t>(me_),
                    .chunks = static_cast<std::uint16_t>(owners_)};
    const StreamFunction algorithm = column_.size() == 2                      ? stream_pair
                                     : ring_can_carry(call_.descriptor.dtype) ? stream_ring
                                                                              : stream_direct;
    return algorithm(task, *context_.streams, context_.scope);
  }

  Status run_in_place(std::size_t segments, std::size_t bytes) {
    RankArray<PeerView> inputs(local_size_);
    RankArray<PeerView> outputs(local_size_);
    for (int rank = 0; rank < static_cast<int>(local_size_); ++rank) {
      auto input = input_view(context_, rank, bytes);
      if (!input.ok()) return input.status();
      auto output = output_view(context_, rank, bytes);
      if (!output.ok()) return output.status();
      inputs[rank] = std::move(*input);
      outputs[rank] = std::move(*output);
    }
    for (std::size_t index = 0; index < segments && owns(); ++index) {
      const ElementRange range = segment(me_, index);
      if (range.count == 0) break;
      const std::size_t offset = range.begin * element_;
      reduce_locally(range, [&](std::size_t rank) -> const std::byte* { return inputs[rank].data + offset; });
      LOCKSTEP_RETURN_IF_ERROR(between_hosts(range));
      for (std::size_t rank = 0; rank < local_size_; ++rank) {
        if (rank == me_) continue;
        std::memcpy(outputs[rank].data + offset, call_.output + offset, range.count * element_);
      }
    }
    return host_synchronise(context_);
  }

  Status run_staged(std::size_t segments) {
    for (std::size_t index = 0; index < segments; ++index) {
      for (std::size_t owner = 0; owner < owners_; ++owner) {
        const ElementRange range = segment(owner, index);
        if (owner == me_ || range.count == 0) continue;
        std::memcpy(layout_.slot(staging(me_), kInputHalf, owner), call_.input + range.begin * element_,
                    range.count * element_);
      }
      LOCKSTEP_RETURN_IF_ERROR(host_synchronise(context_));
      if (const ElementRange range = owns() ? segment(me_, index) : ElementRange{}; range.count > 0) {
        reduce_locally(range, [&](std::size_t rank) -> const std::byte* {
          return rank == me_ ? call_.input + range.begin * element_ : layout_.slot(staging(rank), kInputHalf, me_);
        });
        LOCKSTEP_RETURN_IF_ERROR(between_hosts(range));
        std::memcpy(layout_.slot(staging(me_), kResultHalf, me_), call_.output + range.begin * element_,
                    range.count * element_);
      }
      LOCKSTEP_RETURN_IF_ERROR(host_synchronise(context_));
      for (std::size_t owner = 0; owner < owners_; ++owner) {
        const ElementRange range = segment(owner, index);
        if (owner == me_ || range.count == 0) continue;
        std::memcpy(call_.output + range.begin * element_, layout_.slot(staging(owner), kResultHalf, owner),
                    range.count * element_);
      }
    }
    return Status();
  }

  // Step 1: into my output. avg divides at the end of step 2.
  template <typename Source>
  void reduce_locally(const ElementRange& range, const Source& source) {
    RankArray<const std::byte*> sources(local_size_);
    for (std::size_t rank = 0; rank < local_size_; ++rank) sources[rank] = source(rank);
    std::byte* target = call_.output + range.begin * element_;
    reduce(call_.descriptor.dtype, call_.descriptor.op, sources.span(), std::span(&target, 1), range.count);
  }

  const CollectiveCall& call_;
  CollectiveContext& context_;
  const std::size_t local_size_;
  const std::size_t me_;
  const std::size_t element_;
  const std::size_t owners_;  // the number of chunks, and of local ranks that own one
  const StagingLayout layout_;
  const std::size_t segment_elements_;
  std::vector<int> column_;  // the owners of my chunk, by host
};

// One rank of each host, in the order of hosts.
std::vector<int> first_ranks(const Topology& topology) {
  std::vector<int> ranks;
  for (const auto& host : topology.hosts) ranks.push_back(host.front());
  return ranks;
}

// The latency algorithm between the first ranks of all hosts, in place.
Status small_between_hosts(const CollectiveCall& call, CollectiveContext& context) {
  const auto ranks = first_ranks(context.topology);
  const StreamTask task{.descriptor = call.descriptor,
                        .ranks = ranks,
                        .me = static_cast<std::size_t>(context.topology.me().host_index),
                        .input = call.output,
                        .output = call.output,
                        .count = call.count(),
                        .counts = {},
                        .divisor = divisor_of(call, context),
                        .chunk = 0,
                        .chunks = 1};
  const auto algorithm = context.topology.oversubscribed ? stream_small_oversubscribed : stream_small;
  return algorithm(task, *context.streams, context.scope);
}

Status hierarchical_small(const CollectiveCall& call, CollectiveContext& context) {
  auto& host = context.host;
  const std::size_t bytes = call.count() * call.element_bytes();
  const std::size_t mine = call.input == nullptr ? 0 : bytes;
  LOCKSTEP_RETURN_IF_ERROR(host_announce_payload(call, context, std::span(call.input, mine), bytes));
  if (host.local_rank() == 0) {
    if (bytes > 0) {
      RankArray<const std::byte*> sources(host.local_size());
      for (int rank = 0; rank < host.local_size(); ++rank) sources[rank] = announced_payload(context, rank, bytes);
      std::byte* target = call.output;
      reduce(call.descriptor.dtype, call.descriptor.op, sources.span(), std::span(&target, 1), call.count());
    }
    LOCKSTEP_RETURN_IF_ERROR(small_between_hosts(call, context));
    if (bytes > 0) std::memcpy(host.staging(0), call.output, bytes);
  }
  LOCKSTEP_RETURN_IF_ERROR(host_synchronise(context));
  if (host.local_rank() != 0 && bytes > 0) std::memcpy(call.output, host.staging(0), bytes);
  return {};
}

}  // namespace

Status hierarchical_all_reduce(const CollectiveCall& call, CollectiveContext& context) {
  if (call.count() * call.element_bytes() <= kHierarchicalSmall) return hierarchical_small(call, context);
  return Hierarchical(call, context).run();
}

Status hierarchical_barrier(const CollectiveCall& call, CollectiveContext& context) {
  return hierarchical_small(call, context);
}

}  // namespace lockstep
