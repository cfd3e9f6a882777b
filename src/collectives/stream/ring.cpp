// Ring all-reduce.
//
// The n ranks form a ring; every rank only receives from its left neighbour and sends to its right
// one. The buffer is divided into n CHUNKS, of which each rank will own one.
//
// Reduce-scatter: in step t (from 0 to n-2) rank r sends chunk r-t, receives chunk r-t-1 (all
// modulo n), and reduces what it received with its own input. What it receives in one step is what
// it sends in the next, so a chunk travels once around the ring and collects one input at every rank
// that it passes; after n-1 steps rank r holds chunk r+1, complete. An average is divided here, once.
// All-gather: the complete chunks travel around the ring once more, n-1 steps, and are copied.
// Every rank thus sends 2(n-1) chunks, 2(n-1)/n of the buffer: no algorithm sends less.
//
// Seen from one rank this is two streams: chunks r, r-1, r-2, ... go out on the right, chunks r-1,
// r-2, ... come in on the left, and stream position p of the incoming one becomes position
// p + (one chunk) of the outgoing one. Steps are only a way to describe positions: no rank waits for
// the end of a step. In the reduce-scatter the incoming stream is divided into SEGMENTS, which are
// received into a few slots of scratch memory, small enough to stay in the cache: while the kernel
// fills one slot, the next is reduced into the output and queued for sending. In the all-gather
// bytes are received in place and forwarded as they arrive.
//
// Same bits everywhere: each chunk is reduced along one path, in ring order, with the operands
// (what was received, own input), and then copied.
//
// In place: the final chunk c is received over the partial result (or input) that this rank sent
// earlier. It cannot arrive too early, because it was computed from exactly those bytes: they must have
// been sent.
#include <algorithm>

#include "collectives/stream/algorithms.h"

namespace lockstep {
namespace {

constexpr std::size_t kRingSlots = 4;

class Ring {
 public:
  Ring(const StreamTask& task, StreamTransport& streams)
      : task_(task),
        streams_(streams),
        n_(task.size()),
        left_(task.left()),
        right_(task.right()),
        segment_bytes_(streams.options().segment_bytes) {}

  Status run(WaitScope& scope) {
    begin_task(streams_, task_, StreamAlgorithm::ring);
    slots_ = streams_.scratch(kRingSlots * segment_bytes_);
    streams_.open_receive(left_);
    streams_.open_send(right_);
    const ByteRange own = chunk(task_.me);
    streams_.send(right_, task_.input + own.begin, own.size);
    receive_more();
    while (!(all_queued() && streams_.idle())) {
      LOCKSTEP_RETURN_IF_ERROR(streams_.advance(scope));
      reduce_received();
      receive_more();
      forward_received();
    }
    return {};
  }

 private:
  // A walk over the incoming stream, segment by segment.
  struct Cursor {
    std::size_t step = 0;
    std::size_t offset = 0;    // in the step's chunk
    std::size_t position = 0;  // in the stream
    std::size_t index = 0;     // of the segment
  };

  std::size_t reduce_steps() const { return n_ - 1; }
  std::size_t all_steps() const { return 2 * (n_ - 1); }
  ByteRange chunk(std::size_t index) const { return chunk_of(task_.count, task_.element_bytes(), n_, index % n_); }
  ByteRange incoming_chunk(std::size_t step) const { return chunk(task_.me + 2 * n_ - 1 - step); }

  // Skips the ends of chunks and empty chunks; false at the end of `steps`.
  bool settle(Cursor& cursor, std::size_t steps) const {
    while (cursor.step < steps && cursor.offset == incoming_chunk(cursor.step).size) {
      ++cursor.step;
      cursor.offset = 0;
    }
    return cursor.step < steps;
  }
  ByteRange segment_at(const Cursor& cursor) const {
    const ByteRange whole = incoming_chunk(cursor.step);
    return {whole.begin + cursor.offset, std::min(segment_bytes_, whole.size - cursor.offset)};
  }
  static void pass(Cursor& cursor, std::size_t bytes) {
    cursor.offset += bytes;
    cursor.position += bytes;
    ++cursor.index;
  }
  std::byte* slot_of(const Cursor& cursor) const { return slots_.data() + cursor.index % kRingSlots * segment_bytes_; }

  void receive_more() {
    while (receiving_.index - reducing_.index < kRingSlots && settle(receiving_, reduce_steps())) {
      const ByteRange segment = segment_at(receiving_);
      streams_.receive(left_, slot_of(receiving_), segment.size);
      pass(receiving_, segment.size);
    }
    if (receiving_.step < reduce_steps() || gathering_) return;
    gathering_ = true;
    for (std::size_t step = reduce_steps(); step < all_steps(); ++step) {
      const ByteRange whole = incoming_chunk(step);
      streams_.receive(left_, task_.output + whole.begin, whole.size);
    }
  }

  void reduce_received() {
    while (settle(reducing_, reduce_steps())) {
      const ByteRange segment = segment_at(reducing_);
      if (streams_.received(left_) < reducing_.position + segment.size) return;
      const bool last = reducing_.step + 1 == reduce_steps();
      std::byte* target = task_.output + segment.begin;
      reduce_two(task_, slot_of(reducing_), task_.input + segment.begin, target, segment.size,
                 last ? task_.divisor : 1);
      streams_.send(right_, target, segment.size);
      pass(reducing_, segment.size);
    }
    if (forwarding_.step < reduce_steps()) forwarding_ = reducing_;
  }

  // The last chunk of the all-gather has reached every rank: no rank needs it from us.
  void forward_received() {
    if (forwarding_.step < reduce_steps()) return;
    while (settle(forwarding_, all_steps() - 1)) {
      const ByteRange whole = incoming_chunk(forwarding_.step);
      const std::size_t arrived =
          std::min(streams_.received(left_) - forwarding_.position, whole.size - forwarding_.offset);
      if (arrived == 0) return;
      streams_.send(right_, task_.output + whole.begin + forwarding_.offset, arrived);
      pass(forwarding_, arrived);
    }
  }

  bool all_queued() const { return gathering_ && forwarding_.step >= all_steps() - 1; }

  const StreamTask& task_;
  StreamTransport& streams_;
  const std::size_t n_;
  const int left_;
  const int right_;
  const std::size_t segment_bytes_;
  std::span<std::byte> slots_;

  Cursor receiving_;   // next segment to queue memory for
  Cursor reducing_;    // next segment to reduce
  Cursor forwarding_;  // next bytes of the all-gather to forward
  bool gathering_ = false;
};

}  // namespace

Status stream_ring(const StreamTask& task, StreamTransport& streams, WaitScope& scope) {
  if (task.size() == 1) {
    reduce_alone(task);
    return {};
  }
  return Ring(task, streams).run(scope);
}

}  // namespace lockstep
