// Direct reduction: every chunk goes straight to the rank that owns it.
//
// The buffer is divided into n CHUNKS; rank c owns chunk c. Every rank sends chunk c of its input to
// rank c, for all c at once. The owner divides its chunk into SEGMENTS; when a segment has arrived from
// all n-1 others, it reduces the n inputs in rank order in one pass, and queues the result for the ranks
// that need it: all (all_reduce), the root (reduce), or none (reduce_scatter). Partial
// results never travel, so that f16, bf16 and the 8-bit integers are rounded once; and the bytes are
// as many as in the ring, 2(n-1)/n of the buffer for an all-reduce. The price is that every rank
// communicates with all the others at once.
//
// The stream from rank r to rank p is: chunk p of r's input, then the reduced chunk r. Pipelined:
// reduced segments follow as soon as the input has been sent, while later segments are
// still arriving. Memory: each peer has two slots of one segment, so one may fill while the other
// is reduced.
//
// In place: the reduced chunk p is received over the input that this rank sent to p. It was computed
// from these bytes, so they have been sent. The own chunk is overwritten by its reduction, after which
// no rank needs the input.
#include <algorithm>

#include "collectives/kernels/kernels.h"
#include "collectives/stream/algorithms.h"

namespace lockstep {
namespace {

constexpr std::size_t kSlots = 2;
// Slots of all peers together stay near the size of a core's cache.
constexpr std::size_t kScratchTarget = 1 << 20;
constexpr std::size_t kMinSegment = 4096;

class Direct {
 public:
  Direct(const StreamTask& task, StreamTransport& streams)
      : task_(task),
        streams_(streams),
        n_(task.size()),
        segment_bytes_(std::clamp(kScratchTarget / (kSlots * n_) / 8 * 8, kMinSegment,
                                  std::max(kMinSegment, streams.options().segment_bytes))),
        own_(chunk(task.me)),
        segments_((own_.size + segment_bytes_ - 1) / segment_bytes_) {}

  Status run(WaitScope& scope) {
    begin_task(streams_, task_, StreamAlgorithm::direct);
    const std::size_t result_slots = result_in_scratch() ? kSlots : 0;
    slots_ = streams_.scratch((kSlots * n_ + result_slots) * segment_bytes_);
    exchange_inputs();
    receive_more();
    while (!(reduced_ == segments_ && streams_.idle())) {
      LOCKSTEP_RETURN_IF_ERROR(streams_.advance(scope));
      while (segment_is_here() && result_has_room()) reduce_segment();
      receive_more();
    }
    return {};
  }

 private:
  bool scatters() const { return task_.descriptor.kind == OperationKind::reduce_scatter; }
  bool to_root_only() const { return task_.descriptor.kind == OperationKind::reduce; }
  bool is_root() const { return task_.me == task_.root; }
  // A rank that is not the root has no output: its reduced chunk passes through scratch memory.
  bool result_in_scratch() const { return to_root_only() && !is_root(); }
  bool wants_result(std::size_t index) const { return !scatters() && (!to_root_only() || index == task_.root); }

  ByteRange chunk(std::size_t index) const {
    if (task_.descriptor.kind == OperationKind::reduce_scatter) return {index * task_.bytes(), task_.bytes()};
    return chunk_of(task_.count, task_.element_bytes(), n_, index);
  }
  ByteRange segment(std::size_t index) const {
    const std::size_t offset = index * segment_bytes_;
    return {offset, std::min(segment_bytes_, own_.size - offset)};
  }
  std::byte* slot(std::size_t peer, std::size_t segment) const {
    return slots_.data() + (peer * kSlots + segment % kSlots) * segment_bytes_;
  }
  std::byte* result(std::size_t index) const {
    if (result_in_scratch()) return slot(n_, index);
    return task_.output + (scatters() ? 0 : own_.begin) + segment(index).begin;
  }

  // Starts with the next rank and continues in ring order, so that not all send to rank 0 first.
  template <typename Action>
  void for_each_peer(Action action) const {
    for (std::size_t distance = 1; distance < n_; ++distance) action((task_.me + distance) % n_);
  }

  void exchange_inputs() {
    for_each_peer([this](std::size_t peer) {
      const int rank = task_.rank_at(peer);
      streams_.open_send(rank);
      streams_.open_receive(rank);
      const ByteRange theirs = chunk(peer);
      streams_.send(rank, task_.input + theirs.begin, theirs.size);
    });
  }

  // Queues memory for the segments whose slots are free, then for the results.
  void receive_more() {
    for (; receiving_ < segments_ && receiving_ < reduced_ + kSlots; ++receiving_) {
      for_each_peer([this](std::size_t peer) {
        streams_.receive(task_.rank_at(peer), slot(peer, receiving_), segment(receiving_).size);
      });
    }
    if (receiving_ < segments_ || gathering_ || !wants_result(task_.me)) return;
    gathering_ = true;
    for_each_peer([this](std::size_t peer) {
      const ByteRange theirs = chunk(peer);
      streams_.receive(task_.rank_at(peer), task_.output + theirs.begin, theirs.size);
    });
  }

  bool segment_is_here() const {
    if (reduced_ == segments_) return false;
    bool here = true;
    for_each_peer(
        [&](std::size_t peer) { here = here && streams_.received(task_.rank_at(peer)) >= segment(reduced_).end(); });
    return here;
  }

  bool result_has_room() const {
    if (!result_in_scratch() || reduced_ < kSlots) return true;
    const std::size_t sent = streams_.sent(task_.rank_at(task_.root));
    return sent >= chunk(task_.root).size + segment(reduced_ - kSlots).end();
  }

  void reduce_segment() {
    const ByteRange range = segment(reduced_);
    const auto inputs = streams_.pointers(n_);
    for (std::size_t peer = 0; peer < n_; ++peer) {
      inputs[peer] = peer == task_.me ? task_.input + own_.begin + range.begin : slot(peer, reduced_);
    }
    std::byte* target = result(reduced_);
    reduce(task_.descriptor.dtype, task_.descriptor.op, inputs, std::span(&target, 1),
           range.size / task_.element_bytes(), task_.divisor);
    for_each_peer([&](std::size_t peer) {
      if (wants_result(peer)) streams_.send(task_.rank_at(peer), target, range.size);
    });
    ++reduced_;
  }

  const StreamTask& task_;
  StreamTransport& streams_;
  const std::size_t n_;
  const std::size_t segment_bytes_;
  const ByteRange own_;
  const std::size_t segments_;
  std::span<std::byte> slots_;
  std::size_t receiving_ = 0;  // segments that have memory
  std::size_t reduced_ = 0;    // segments that are reduced
  bool gathering_ = false;
};

}  // namespace

Status stream_direct(const StreamTask& task, StreamTransport& streams, WaitScope& scope) {
  if (task.size() == 1) {
    reduce_alone(task);
    return {};
  }
  return Direct(task, streams).run(scope);
}

}  // namespace lockstep
