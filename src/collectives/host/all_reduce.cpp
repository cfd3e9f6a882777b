#include "collectives/host/all_reduce.h"

#include <cstring>

#include "base/rank_array.h"
#include "collectives/chunks.h"
#include "collectives/host/entry.h"
#include "collectives/host/staging.h"
#include "collectives/kernels/kernels.h"

namespace lockstep {
namespace {

bool receives_result(const CollectiveCall& call, int rank) {
  return call.descriptor.kind == OperationKind::all_reduce || rank == call.descriptor.root;
}

bool all_in_registered_memory(const CollectiveCall& call, const CollectiveContext& context) {
  for (int rank = 0; rank < context.host.local_size(); ++rank) {
    if (!announced_input(context, rank).registered()) return false;
    if (receives_result(call, rank) && !announced_output(context, rank).registered()) return false;
  }
  return true;
}

Status reduce_in_place(const CollectiveCall& call, CollectiveContext& context) {
  auto& host = context.host;
  const int ranks = host.local_size();
  const std::size_t element = call.element_bytes();
  const std::size_t bytes = call.count() * element;
  const ElementRange chunk = aligned_chunk(call.count(), static_cast<std::size_t>(ranks),
                                           static_cast<std::size_t>(host.local_rank()), element);

  RankArray<PeerView> inputs(ranks);
  RankArray<PeerView> outputs(ranks);
  RankArray<const std::byte*> sources(ranks);
  RankArray<std::byte*> targets(ranks);
  std::size_t target_count = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    auto input = input_view(context, rank, bytes);
    if (!input.ok()) return input.status();
    inputs[rank] = std::move(*input);
    sources[rank] = inputs[rank].data + chunk.begin * element;
    if (!receives_result(call, rank)) continue;
    auto output = output_view(context, rank, bytes);
    if (!output.ok()) return output.status();
    outputs[rank] = std::move(*output);
    targets[target_count++] = outputs[rank].data + chunk.begin * element;
  }
  LOCKSTEP_RETURN_IF_ERROR(for_each_with_stop_check(context, chunk.count, element, [&](std::size_t, std::size_t count) {
    reduce(call.descriptor.dtype, call.descriptor.op, sources.span(), targets.first(target_count), count,
           divisor_of(call, context));
    for (auto& source : sources.span()) source += count * element;
    for (auto& target : targets.first(target_count)) target += count * element;
  }));
  return host_synchronise(context);
}

constexpr std::size_t kReduceBlock = std::size_t{16} << 10;

// The staged path: see the header. `Staged` holds what copy_in, reduce_segment and copy_out share.
class Staged {
 public:
  Staged(const CollectiveCall& call, CollectiveContext& context)
      : call_(call),
        context_(context),
        ranks_(static_cast<std::size_t>(context.host.local_size())),
        me_(static_cast<std::size_t>(context.host.local_rank())),
        element_(call.element_bytes()),
        // One slot for each chunk to copy in; the slot of this rank's own chunk receives its results.
        layout_(ranks_, staging_step_bytes(context.host.oversubscribed())),
        segment_elements_(layout_.segment_bytes() / element_) {}

  Status run() {
    const std::size_t longest = chunk(0).count;
    const std::size_t segments = (longest + segment_elements_ - 1) / segment_elements_;
    for (std::size_t step = 0; step < segments + 2; ++step) {
      if (step < segments) copy_in(step);
      if (step >= 1 && step - 1 < segments) reduce_segment(step - 1);
      if (step >= 2) copy_out(step - 2);
      // After the last copies no rank writes to staging memory before the next announcement.
      if (step < segments + 1) LOCKSTEP_RETURN_IF_ERROR(host_synchronise(context_));
    }
    return Status();
  }

 private:
  ElementRange chunk(std::size_t rank) const { return aligned_chunk(call_.count(), ranks_, rank, element_); }

  // Segment `index` of a rank's chunk, in elements of the whole buffer.
  ElementRange segment(std::size_t rank, std::size_t index) const {
    const ElementRange whole = chunk(rank);
    const std::size_t begin = std::min(whole.count, index * segment_elements_);
    return ElementRange{whole.begin + begin, std::min(segment_elements_, whole.count - begin)};
  }
  std::byte* staging(std::size_t rank) const { return context_.host.staging(static_cast<int>(rank)); }

  void copy_in(std::size_t index) {
    for (std::size_t owner = 0; owner < ranks_; ++owner) {
      if (owner == me_) continue;
      const ElementRange range = segment(owner, index);
      if (range.count == 0) continue;
      copy_bytes(layout_.slot(staging(me_), index, owner), call_.input + range.begin * element_,
                 range.count * element_);
    }
  }

  void reduce_segment(std::size_t index) {
    const ElementRange range = segment(me_, index);
    if (range.count == 0) return;
    RankArray<const std::byte*> sources(ranks_);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      sources[rank] = rank == me_ ? call_.input + range.begin * element_ : layout_.slot(staging(rank), index, me_);
    }
    std::byte* result = layout_.slot(staging(me_), index, me_);
    // Block by block, so that what was just reduced is still in the first-level cache when
    // non-temporal stores copy it to the staging memory.
    const bool keep = receives_result(call_, static_cast<int>(me_));
    std::byte* target = keep ? call_.output + range.begin * element_ : result;
    const std::size_t block = kReduceBlock / element_;
    for (std::size_t begin = 0; begin < range.count; begin += block) {
      const std::size_t count = std::min(block, range.count - begin);
      reduce(call_.descriptor.dtype, call_.descriptor.op, sources.span(), std::span(&target, 1), count,
             divisor_of(call_, context_));
      if (keep) copy_bytes(result, target, count * element_);
      for (auto& source : sources.span()) source += count * element_;
      target += count * element_;
      result += count * element_;
    }
  }

  void copy_out(std::size_t index) {
    if (!receives_result(call_, static_cast<int>(me_))) return;
    for (std::size_t owner = 0; owner < ranks_; ++owner) {
      if (owner == me_) continue;
      const ElementRange range = segment(owner, index);
      if (range.count == 0) continue;
      std::memcpy(call_.output + range.begin * element_, layout_.slot(staging(owner), index, owner),
                  range.count * element_);
    }
  }

  const CollectiveCall& call_;
  CollectiveContext& context_;
  const std::size_t ranks_;
  const std::size_t me_;
  const std::size_t element_;
  const StagingLayout layout_;
  const std::size_t segment_elements_;
};

}  // namespace

Status host_all_reduce(const CollectiveCall& call, CollectiveContext& context, HostMemoryPath path) {
  const std::size_t bytes = call.count() * call.element_bytes();
  CollectiveCall actual = call;
  const bool hide = path == HostMemoryPath::staged;
  // Input outside of registered memory but output inside: one local copy makes it an operation in
  // place without staging.
  if (!hide && call.output != nullptr && call.input != call.output &&
      context.host.find(call.output, bytes).registered() && !context.host.find(call.input, bytes).registered()) {
    std::memcpy(call.output, call.input, bytes);
    actual.input = call.output;
  }
  LOCKSTEP_RETURN_IF_ERROR(host_announce_memory(actual, context, bytes, bytes, hide));
  if (all_in_registered_memory(actual, context)) return reduce_in_place(actual, context);
  return Staged(actual, context).run();
}

}  // namespace lockstep
