// Direct exchange between pairs: gather, scatter, all_to_all, and the direct all-gather.
//
// Every pair of ranks that have data for each other exchanges it directly, in n STEPS: in step s a rank's
// partner is (s - r) modulo n. That is symmetric, the partner's partner in step s is this rank
// again, so all pairs of a step are disjoint; in one of the steps a rank is its own partner. A rank
// has at most kWindow steps in flight at a time: enough to keep the link busy, few enough that
// hundreds of ranks do not all send to one. The earliest unfinished step of all ranks is in flight
// on both sides, so there is always one that makes progress.
//
// What two partners exchange depends on the kind:
//   gather       every rank's input to its chunk of the root's output
//   scatter      each chunk of the root's input to the output of its rank
//   all_to_all   chunk p of this rank's input to rank p; rank p's chunk goes to chunk p of the output
//   all_gather   this rank's input to every rank
//
// In place, all_to_all receives chunk p over the very bytes that it sends to p. So memory for
// receiving is queued only up to what has been sent. Both sides cannot wait for each other: what
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
  Exchange(const StreamTask& task, StreamTransport& streams) : task_(task), streams_(streams), n_(task.size()) {}

  Status run(WaitScope& scope) {
    begin_task(streams_, task_, StreamAlgorithm::exchange);
    keep_own_chunk();
    for (;;) {
      while (opened_ < n_ && opened_ < done_ + kWindow) open_step(opened_++);
      for (std::size_t step = done_; step < opened_; ++step) give_memory(step);
      while (done_ < opened_ && finished(done_)) ++done_;
      if (done_ == n_) break;
      if (opened_ < n_ && opened_ < done_ + kWindow) continue;
      LOCKSTEP_RETURN_IF_ERROR(streams_.advance(scope));
    }
    copy_scattered_chunk();
    return {};
  }

 private:
  OperationKind kind() const { return task_.descriptor.kind; }
  bool is_root() const { return task_.me == task_.root; }
  std::size_t partner(std::size_t step) const { return (step + n_ - task_.me) % n_; }
  bool sends_to(std::size_t peer) const {
    switch (kind()) {
      case OperationKind::gather: return peer == task_.root;
      case OperationKind::scatter: return is_root();
      default: return true;
    }
  }
  bool receives_from(std::size_t peer) const {
    switch (kind()) {
      case OperationKind::gather: return is_root();
      case OperationKind::scatter: return peer == task_.root;
      default: return true;
    }
  }
  ByteRange chunk(std::size_t index) const {
    if (kind() == OperationKind::all_gather_v) return gathered_chunk(task_, index);
    return {index * task_.bytes(), task_.bytes()};
  }
  // The range of my input that goes to `peer`.
  ByteRange outgoing(std::size_t peer) const {
    const bool by_peer = kind() == OperationKind::scatter || kind() == OperationKind::all_to_all;
    return by_peer ? chunk(peer) : ByteRange{0, chunk(task_.me).size};
  }
  // The range of my output that comes from `peer`.
  ByteRange incoming(std::size_t peer) const {
    return kind() == OperationKind::scatter ? ByteRange{0, task_.bytes()} : chunk(peer);
  }
  bool overwrites_input() const { return kind() == OperationKind::all_to_all && task_.input == task_.output; }

  // Before anything is received: in place, my chunk may be where another rank's chunk will be received.
  void keep_own_chunk() {
    const bool stays = kind() == OperationKind::scatter || (kind() == OperationKind::gather && !is_root());
    const ByteRange target = incoming(task_.me);
    if (stays || target.size == 0) return;
    std::memmove(task_.output + target.begin, task_.input + outgoing(task_.me).begin, target.size);
  }
  // After everything is sent: the output may overlap the input.
  void copy_scattered_chunk() {
    if (kind() != OperationKind::scatter || !is_root() || task_.bytes() == 0) return;
    std::memmove(task_.output, task_.input + outgoing(task_.me).begin, task_.bytes());
  }

  void open_step(std::size_t step) {
    const std::size_t peer = partner(step);
    if (peer == task_.me) return;
    const int rank = task_.rank_at(peer);
    if (sends_to(peer)) {
      streams_.open_send(rank);
      streams_.send(rank, task_.input + outgoing(peer).begin, outgoing(peer).size);
    }
    if (!receives_from(peer)) return;
    streams_.open_receive(rank);
    if (!overwrites_input()) streams_.receive(rank, task_.output + incoming(peer).begin, incoming(peer).size);
  }

  void give_memory(std::size_t step) {
    const std::size_t peer = partner(step);
    if (!overwrites_input() || peer == task_.me) return;
    const int rank = task_.rank_at(peer);
    const std::size_t given = streams_.receive_queued(rank);
    const std::size_t sent = streams_.sent(rank);
    if (sent > given) streams_.receive(rank, task_.output + incoming(peer).begin + given, sent - given);
  }

  bool finished(std::size_t step) const {
    const std::size_t peer = partner(step);
    if (peer == task_.me) return true;
    const int rank = task_.rank_at(peer);
    const bool all_given = !receives_from(peer) || streams_.receive_queued(rank) == incoming(peer).size;
    return all_given && streams_.idle(rank);
  }

  const StreamTask& task_;
  StreamTransport& streams_;
  const std::size_t n_;
  std::size_t opened_ = 0;  // steps that are in flight or done
  std::size_t done_ = 0;    // steps that are done, without a gap
};

}  // namespace

Status stream_exchange(const StreamTask& task, StreamTransport& streams, WaitScope& scope) {
  return Exchange(task, streams).run(scope);
}

}  // namespace lockstep
