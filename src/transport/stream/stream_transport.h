// Collectives over stream sockets between ranks: TCP to other hosts, Unix sockets to
// ranks of this host if a group spans hosts.
//
// How an operation uses it:
//   begin(header, check)          once
//   open_send / open_receive      for each peer and direction that it uses
//   send / receive                queue memory, in the order of the stream with that peer; as often
//                                 as needed, also while bytes move
//   advance(scope)                moves what can be moved, else waits; between two calls check
//                                 sent() and received(), reduce what has arrived, queue more
//   finish(scope)                 until all that is queued was sent or received
// Sending and receiving proceed at the same time with all peers. Both ends must queue equal numbers
// of bytes for each direction; lengths are not transmitted. Nothing past the operation's own bytes is read,
// so a peer may already send its next operation.
//
// Each connection starts each operation with the header, 64 bytes that must be equal on both
// sides; `check` turns a difference into the error that explains it.
//
// Connections to a peer are made in the first operation that uses them: the higher rank connects, the lower one waits
// for that while other streams move.
//
// Threads: one at a time. Blocks in advance and finish only, until the scope ends the wait. After an
// error the streams are out of step: the transport can only be destroyed.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/net/channel.h"
#include "base/rank_vector.h"
#include "base/unique_fd.h"
#include "lockstep/base/status.h"
#include "transport/link_source.h"
#include "transport/stream/stream_flow.h"
#include "transport/wait_scope.h"

namespace lockstep {

// Defaults by measurement: docs/adr/0002-tcp-streams.md.
struct StreamOptions {
  // The size of a stripe, if there are several connections to a peer. Equal on all ranks.
  std::size_t stripe_bytes = 256 << 10;
  // The size of a segment that algorithms pipeline; a multiple of 8. Does not affect results or the wire format.
  std::size_t segment_bytes = 256 << 10;
  // The largest payload of one system call.
  std::size_t call_bytes = 1 << 20;
  // The same for sending a stream of more than 256 KiB but less than four calls: in one burst, all of
  // it would be sent before anything is received, and would have left the cache by then.
  std::size_t burst_bytes = 192 << 10;
  // Requested with SO_SNDBUF. With fewer bytes in flight, fewer fall out of the cache between two hosts
  // that are near each other; 0 leaves it to the kernel, which is better if bandwidth times round trip is
  // larger than this.
  std::size_t send_buffer_bytes = 512 << 10;
  // How long to retry without sleeping before poll(2), while only few bytes are missing; each retry yields the
  // processor.
  std::chrono::microseconds spin{50};
};

// Explains how header `theirs`, sent by `their_rank`, differs from `mine`.
using StreamHeaderCheck = Status (*)(int my_rank, const StreamHeaderBytes& mine, int their_rank,
                                     const StreamHeaderBytes& theirs);

class StreamTransport {
 public:
  // `connections[r]`: to rank r; authenticated; equally many and in equal
  // order on both sides. The own entry is empty.
  StreamTransport(int rank, std::vector<std::vector<Channel>> connections, const StreamOptions& options = {});
  // The same for `size` ranks that are not connected yet.
  StreamTransport(int rank, int size, std::shared_ptr<LinkSource> links, const StreamOptions& options = {});
  ~StreamTransport();
  StreamTransport(const StreamTransport&) = delete;
  StreamTransport& operator=(const StreamTransport&) = delete;

  int rank() const { return rank_; }
  // 0, 1, ... up to the size of the group.
  std::span<const int> all_ranks() const { return all_ranks_; }
  const StreamOptions& options() const { return options_; }

  void begin(const StreamHeaderBytes& header, StreamHeaderCheck check);
  void open_send(int rank);
  void open_receive(int rank);

  // The memory must stay valid until it is sent (then it may be overwritten) or received.
  void send(int rank, const std::byte* data, std::size_t size);
  void receive(int rank, std::byte* data, std::size_t size);
  // How many bytes of the stream to (from) `rank` were sent (received), from its start.
  std::size_t sent(int rank) const { return peer(rank).outgoing.completed(); }
  std::size_t received(int rank) const { return peer(rank).incoming.completed(); }
  // How much memory was queued for the stream from `rank`.
  std::size_t receive_queued(int rank) const { return peer(rank).incoming.pushed(); }

  // Moves what can be moved at once; if that is nothing, waits until something can. Errors: those of
  // the scope and of the header check; peer_lost, which names the rank whose connection closed;
  // internal if nothing is queued, because the wait would never end.
  Status advance(WaitScope& scope);
  Status finish(WaitScope& scope);
  // Nothing queued is left to move, with all peers or with one.
  bool idle() const;
  bool idle(int rank) const { return peer(rank).outgoing.idle() && peer(rank).incoming.idle(); }

  // Memory for the running operation, page-aligned; valid until the next call. Kept between
  // operations.
  std::span<std::byte> scratch(std::size_t size);
  // Likewise, room for `count` pointers, at most one for each rank.
  std::span<const std::byte*> pointers(std::size_t count) { return std::span(pointers_).first(count); }

 private:
  struct Peer {
    StreamFlow outgoing;
    StreamFlow incoming;
    std::vector<Channel> connections = {};  // all, or none of them is valid
    bool active = false;
  };
  struct PollEntry {
    StreamFlow* flow;
    std::size_t connection;
  };
  struct AlignedDelete {
    void operator()(std::byte* memory) const;
  };

  const Peer& peer(int rank) const { return peers_[rank]; }
  Peer& activate(int rank);
  Status move_all(WaitScope& scope, bool retry_receives, bool& moved);
  Status move_flow(WaitScope& scope, int rank, StreamFlow& flow, std::size_t limit, bool retry_blocked, bool& moved);
  std::size_t send_limit(const StreamFlow& flow) const;
  Status check_header(int rank, const StreamConnection& connection) const;
  // How the connection to `rank` was lost, or better, why, if the control plane reports that in time.
  Status lost(WaitScope& scope, int rank, const Status& how);
  // Connects the peers in unconnected_, as far as that does not depend on them.
  Status connect_peers(WaitScope& scope);
  Status connect_to_lower(WaitScope& scope, int rank);
  void use(int rank, std::uint32_t index, Channel channel);
  bool few_bytes_missing() const;
  Status spin(WaitScope& scope, bool& moved);
  Status sleep(WaitScope& scope);
  Status check(WaitScope& scope);

  // Constant after construction.
  const int rank_;
  const StreamOptions options_;
  const std::shared_ptr<LinkSource> links_;  // null if all are connected
  const UniqueFd arrival_fd_;                // an eventfd: a peer has connected
  std::vector<int> all_ranks_;

  // Of the running operation; the next one reuses the memory.
  RankVector<Peer> peers_;
  std::vector<int> active_;       // ranks with an open flow
  std::vector<int> unconnected_;  // those of them that have no connections yet
  StreamHeaderBytes header_{};
  StreamHeaderCheck header_check_ = nullptr;
  Deadline::Clock::time_point next_check_{};
  Deadline::Clock::time_point spin_again_{};  // until then, waits do not spin

  std::vector<pollfd> poll_fds_;
  std::vector<PollEntry> poll_entries_;
  std::vector<int> waiting_for_;
  std::unique_ptr<std::byte, AlignedDelete> scratch_;
  std::size_t scratch_size_ = 0;
  std::vector<const std::byte*> pointers_;
};

}  // namespace lockstep
