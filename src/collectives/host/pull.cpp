#include "collectives/host/pull.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/rank_array.h"
#include "collectives/host/entry.h"
#include "collectives/host/staging.h"
#include "collectives/kernels/kernels.h"

namespace lockstep {
namespace {

class Pull {
 public:
  Pull(const CollectiveCall& call, CollectiveContext& context)
      : call_(call),
        context_(context),
        ranks_(context.host.local_size()),
        me_(context.host.local_rank()),
        kind_(call.descriptor.kind),
        chunk_bytes_(call.count() * call.element_bytes()) {}

  Status run(HostMemoryPath path) {
    // In place, a rank would overwrite chunks that others have not read yet.
    const bool clobbers = kind_ == OperationKind::all_to_all && call_.input == call_.output;
    LOCKSTEP_RETURN_IF_ERROR(host_announce_memory(call_, context_, input_bytes(me_), 0,
                                                  path == HostMemoryPath::staged || clobbers || !provides(me_)));
    for (int rank = 0; rank < ranks_; ++rank) {
      if (provides(rank) && !announced_input(context_, rank).registered()) return staged();
    }
    return direct();
  }

 private:
  bool from_root() const { return kind_ == OperationKind::broadcast || kind_ == OperationKind::scatter; }
  bool chunk_per_rank() const {
    return kind_ == OperationKind::reduce_scatter || kind_ == OperationKind::scatter ||
           kind_ == OperationKind::all_to_all;
  }
  bool provides(int rank) const { return !from_root() || rank == call_.descriptor.root; }
  bool pulls() const {
    if (kind_ == OperationKind::gather) return me_ == call_.descriptor.root;
    if (kind_ == OperationKind::broadcast) return me_ != call_.descriptor.root;
    return true;
  }
  std::size_t chunks() const { return chunk_per_rank() ? static_cast<std::size_t>(ranks_) : 1; }
  // Bytes of each chunk of a rank's input.
  std::size_t chunk_bytes(int rank) const {
    return kind_ == OperationKind::all_gather_v ? call_.count_of(rank) * call_.element_bytes() : chunk_bytes_;
  }
  std::size_t input_bytes(int rank) const { return chunk_bytes(rank) * chunks(); }
  // Where the chunk of rank `from` goes in my output.
  std::byte* destination(int from) const {
    if (from_root() || kind_ == OperationKind::reduce_scatter) return call_.output;
    if (kind_ != OperationKind::all_gather_v) return call_.output + chunk_bytes_ * static_cast<std::size_t>(from);
    std::byte* to = call_.output;
    for (int rank = 0; rank < from; ++rank) to += chunk_bytes(rank);
    return to;
  }

  // Pulls bytes [begin, begin + bytes) of my chunk of every provider; they begin at `source(rank)`.
  template <typename Source>
  void pull(std::size_t begin, std::size_t bytes, const Source& source) {
    if (!pulls()) return;
    if (kind_ == OperationKind::reduce_scatter) {
      RankArray<const std::byte*> sources(ranks_);
      for (int rank = 0; rank < ranks_; ++rank) sources[rank] = source(rank);
      std::byte* to = call_.output + begin;
      reduce(call_.descriptor.dtype, call_.descriptor.op, sources.span(), std::span(&to, 1),
             bytes / call_.element_bytes(), divisor_of(call_, context_));
      return;
    }
    for (int turn = 0; turn < ranks_; ++turn) {
      const int rank = (me_ + turn) % ranks_;  // each rank starts elsewhere, so that they do not all read one memory
      if (!provides(rank)) continue;
      const std::size_t end = std::min(begin + bytes, chunk_bytes(rank));
      std::byte* to = destination(rank) + begin;
      const std::byte* from = source(rank);
      if (begin < end && to != from) std::memcpy(to, from, end - begin);
    }
  }

  Status direct() {
    RankArray<PeerView> views(ranks_);
    std::size_t longest = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (!provides(rank)) continue;
      auto view = input_view(context_, rank, input_bytes(rank));
      if (!view.ok()) return view.status();
      views[rank] = std::move(*view);
      longest = std::max(longest, chunk_bytes(rank));
    }
    const std::size_t offset = chunk_per_rank() ? chunk_bytes_ * static_cast<std::size_t>(me_) : 0;
    LOCKSTEP_RETURN_IF_ERROR(for_each_with_stop_check(context_, longest, 1, [&](std::size_t begin, std::size_t bytes) {
      pull(begin, bytes, [&](int rank) -> const std::byte* { return views[rank].data + offset + begin; });
    }));
    return host_synchronise(context_);
  }

  Status staged() {
    std::size_t longest = 0;
    for (int rank = 0; rank < ranks_; ++rank) longest = std::max(longest, chunk_bytes(rank));
    const StagingLayout layout(chunks(), staging_step_bytes(context_.host.oversubscribed()));
    const std::size_t segment_bytes = layout.segment_bytes();
    const std::size_t segments = (longest + segment_bytes - 1) / segment_bytes;
    const std::size_t my_chunk = chunk_per_rank() ? static_cast<std::size_t>(me_) : 0;
    for (std::size_t step = 0; step <= segments; ++step) {
      if (step < segments && provides(me_)) copy_in(layout, step);
      if (step > 0) {
        const std::size_t begin = (step - 1) * segment_bytes;
        pull(begin, std::min(segment_bytes, longest - begin), [&](int rank) -> const std::byte* {
          return layout.slot(context_.host.staging(rank), step - 1, my_chunk);
        });
      }
      if (step < segments) LOCKSTEP_RETURN_IF_ERROR(host_synchronise(context_));
    }
    return Status();
  }

  void copy_in(const StagingLayout& layout, std::size_t step) {
    const std::size_t begin = step * layout.segment_bytes();
    const std::size_t size = chunk_bytes(me_);
    if (begin >= size) return;
    for (std::size_t chunk = 0; chunk < chunks(); ++chunk) {
      copy_bytes(layout.slot(context_.host.staging(me_), step, chunk), call_.input + chunk * size + begin,
                 std::min(layout.segment_bytes(), size - begin));
    }
  }

  const CollectiveCall& call_;
  CollectiveContext& context_;
  const int ranks_;
  const int me_;
  const OperationKind kind_;
  const std::size_t chunk_bytes_;
};

}  // namespace

Status host_pull(const CollectiveCall& call, CollectiveContext& context, HostMemoryPath path) {
  return Pull(call, context).run(path);
}

}  // namespace lockstep
