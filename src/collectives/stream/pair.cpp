// All-reduce of two ranks.
//
// Each rank sends its whole input and receives the whole input of the other, SEGMENT by segment
// into a few slots of scratch memory; a segment that has arrived is reduced with the own one into the
// output. Two ranks that run the ring send as many bytes, but in two steps, of which the second can
// only follow the first; here there is one step, so the time is one latency less, and both
// directions are busy from start to end. The price is that both ranks reduce the whole buffer.
//
// Same bits on both: both reduce with the operands in rank order.
//
// In place: a segment of the buffer may only be overwritten by its reduction once it has been sent,
// so a received segment stays in its slot until then. If all slots are full no more is received,
// but not on both sides at once: full slots mean that this rank has received more than it has sent,
// and that cannot be true of both.
#include <algorithm>

#include "collectives/stream/algorithms.h"

namespace lockstep {
namespace {

constexpr std::size_t kPairSlots = 4;

class Pair {
 public:
  Pair(const StreamTask& task, StreamTransport& streams)
      : task_(task),
        streams_(streams),
        other_(task.right()),
        segment_bytes_(streams.options().segment_bytes),
        segments_((task.bytes() + segment_bytes_ - 1) / segment_bytes_) {}

  Status run(WaitScope& scope) {
    begin_task(streams_, task_, StreamAlgorithm::pair);
    slots_ = streams_.scratch(std::min(segments_, kPairSlots) * segment_bytes_);
    streams_.open_send(other_);
    streams_.open_receive(other_);
    streams_.send(other_, task_.input, task_.bytes());
    receive_more();
    while (!(reduced_ == segments_ && streams_.idle())) {
      LOCKSTEP_RETURN_IF_ERROR(streams_.advance(scope));
      while (can_reduce()) reduce_segment();
      receive_more();
    }
    return {};
  }

 private:
  ByteRange segment(std::size_t index) const {
    const std::size_t begin = index * segment_bytes_;
    return {begin, std::min(segment_bytes_, task_.bytes() - begin)};
  }
  std::byte* slot(std::size_t index) const { return slots_.data() + index % kPairSlots * segment_bytes_; }

  void receive_more() {
    for (; receiving_ < segments_ && receiving_ < reduced_ + kPairSlots; ++receiving_) {
      streams_.receive(other_, slot(receiving_), segment(receiving_).size);
    }
  }

  bool can_reduce() const {
    if (reduced_ == segments_) return false;
    const std::size_t end = segment(reduced_).end();
    if (streams_.received(other_) < end) return false;
    return task_.input != task_.output || streams_.sent(other_) >= end;
  }

  void reduce_segment() {
    const ByteRange range = segment(reduced_);
    const std::byte* mine = task_.input + range.begin;
    const std::byte* theirs = slot(reduced_);
    const bool first = task_.me == 0;
    reduce_two(task_, first ? mine : theirs, first ? theirs : mine, task_.output + range.begin, range.size,
               task_.divisor);
    ++reduced_;
  }

  const StreamTask& task_;
  StreamTransport& streams_;
  const int other_;
  const std::size_t segment_bytes_;
  const std::size_t segments_;
  std::span<std::byte> slots_;
  std::size_t receiving_ = 0;  // segments that have memory
  std::size_t reduced_ = 0;    // segments that are done
};

}  // namespace

Status stream_pair(const StreamTask& task, StreamTransport& streams, WaitScope& scope) {
  if (task.size() == 1) {
    reduce_alone(task);
    return {};
  }
  if (task.size() != 2) {
    return Status(StatusCode::internal, "the pair algorithm was chosen for a number of ranks other than two");
  }
  return Pair(task, streams).run(scope);
}

}  // namespace lockstep
