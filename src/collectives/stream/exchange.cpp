// Direct exchange between pairs: gather, scatter, all_to_all, and the direct all-gather.
//
// Every pair that has something for each other talks directly, in n STEPS: in step s a rank's
// partner is (s - r) modulo n. That is symmetric, the partner's partner in step s is this rank
// again, so all pairs of a step are disjoint; in one of the steps a rank is its own partner. A rank
// has at most kWindow steps under way at a time: enough to keep the link busy, few enough that
// hundreds of ranks do not all send to one. The earliest unfinished step of all ranks is under way
// on both sides, so there is always one that gets on.
//
// What two partners exchange depends on the kind:
//   gather       everybody's input to its part of the root's output
//   scatter      a part of the root's input to everybody's output
//   all_to_all   part p of this rank's input to rank p; rank p's part comes to part p of the output
//   all_gather   this rank's input to everybody
//
// In place, all_to_all receives part p over the very bytes that it sends to p. So the memory for
// receiving is given out only up to what has been sent. Both sides cannot wait for each other: what
// one has not yet been able to send fills the connection, and the other has room for as much as it
// has sent itself.
#include <algorithm>
#include <cstring>

#include "collectives/stream/algorithms.h"

namespace lockstep {
namespace {

constexpr std::size_t kWindow = 8;

class Exchange {
 public:
  Exchange(const StreamPart& part, StreamTransport& streams) : part_(part), streams_(streams), n_(part.size()) {}

  Status run(WaitScope& scope) {
    begin_part(streams_, part_, StreamAlgorithm::exchange);
    keep_own_part();
    for (;;) {
      while (opened_ < n_ && opened_ < done_ + kWindow) open_step(opened_++);
      for (std::size_t step = done_; step < opened_; ++step) give_memory(step);
      while (done_ < opened_ && finished(done_)) ++done_;
      if (done_ == n_) break;
      if (opened_ < n_ && opened_ < done_ + kWindow) continue;
      LOCKSTEP_RETURN_IF_ERROR(streams_.advance(scope));
    }
    copy_scattered_part();
    return {};
  }

 private:
  OperationKind kind() const { return part_.descriptor.kind; }
  bool is_root() const { return part_.me == part_.root; }
  std::size_t partner(std::size_t step) const { return (step + n_ - part_.me) % n_; }
  bool sends_to(std::size_t peer) const {
    switch (kind()) {
      case OperationKind::gather: return peer == part_.root;
      case OperationKind::scatter: return is_root();
      default: return true;
    }
  }
  bool receives_from(std::size_t peer) const {
    switch (kind()) {
      case OperationKind::gather: return is_root();
      case OperationKind::scatter: return peer == part_.root;
      default: return true;
    }
  }
  ByteRange part_of(std::size_t index) const {
    if (kind() == OperationKind::all_gather_v) return gathered_part(part_, index);
    return {index * part_.bytes(), part_.bytes()};
  }
  // What of the own input goes to `peer`.
  ByteRange outgoing(std::size_t peer) const {
    const bool by_peer = kind() == OperationKind::scatter || kind() == OperationKind::all_to_all;
    return by_peer ? part_of(peer) : ByteRange{0, part_of(part_.me).size};
  }
  // Where in the output what comes from `peer` goes.
  ByteRange incoming(std::size_t peer) const {
    return kind() == OperationKind::scatter ? ByteRange{0, part_.bytes()} : part_of(peer);
  }
  bool overwrites_input() const { return kind() == OperationKind::all_to_all && part_.input == part_.output; }

  // Before anything is received: in place the own part may lie where another's will come.
  void keep_own_part() {
    const bool stays = kind() == OperationKind::scatter || (kind() == OperationKind::gather && !is_root());
    const ByteRange target = incoming(part_.me);
    if (stays || target.size == 0) return;
    std::memmove(part_.output + target.begin, part_.input + outgoing(part_.me).begin, target.size);
  }
  // After everything is sent: the output may lie in the input.
  void copy_scattered_part() {
    if (kind() != OperationKind::scatter || !is_root() || part_.bytes() == 0) return;
    std::memmove(part_.output, part_.input + outgoing(part_.me).begin, part_.bytes());
  }

  void open_step(std::size_t step) {
    const std::size_t peer = partner(step);
    if (peer == part_.me) return;
    const int rank = part_.rank_at(peer);
    if (sends_to(peer)) {
      streams_.open_send(rank);
      streams_.send(rank, part_.input + outgoing(peer).begin, outgoing(peer).size);
    }
    if (!receives_from(peer)) return;
    streams_.open_receive(rank);
    if (!overwrites_input()) streams_.receive(rank, part_.output + incoming(peer).begin, incoming(peer).size);
  }

  void give_memory(std::size_t step) {
    const std::size_t peer = partner(step);
    if (!overwrites_input() || peer == part_.me) return;
    const int rank = part_.rank_at(peer);
    const std::size_t given = streams_.receive_queued(rank);
    const std::size_t sent = streams_.sent(rank);
    if (sent > given) streams_.receive(rank, part_.output + incoming(peer).begin + given, sent - given);
  }

  bool finished(std::size_t step) const {
    const std::size_t peer = partner(step);
    if (peer == part_.me) return true;
    const int rank = part_.rank_at(peer);
    const bool all_given = !receives_from(peer) || streams_.receive_queued(rank) == incoming(peer).size;
    return all_given && streams_.idle(rank);
  }

  const StreamPart& part_;
  StreamTransport& streams_;
  const std::size_t n_;
  std::size_t opened_ = 0;  // steps that are under way or done
  std::size_t done_ = 0;    // steps that are done, without a gap
};

}  // namespace

Status stream_exchange(const StreamPart& part, StreamTransport& streams, WaitScope& scope) {
  return Exchange(part, streams).run(scope);
}

}  // namespace lockstep
