// Point-to-point messages of a group, matched by (sender, tag).
//
// One thread, started by the first send or recv, moves all messages of all peers at the same time,
// so that two ranks may send to each other first and receive afterwards. A message for which no recv has
// been posted yet is kept, up to kMaxUnexpectedBytes per peer; beyond that it stays with the sender, and
// so does what that peer sent after it.
//
// The first message to a peer connects a link to it (link_connectors.h), which carries all messages in this direction.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/rank_vector.h"
#include "base/unique_fd.h"
#include "communicator/group_core.h"
#include "communicator/message/link_connectors.h"
#include "communicator/message/message_header.h"
#include "communicator/work_state.h"
#include "lockstep/collectives/types.h"
#include "lockstep/communicator/work.h"

namespace lockstep {

inline constexpr std::size_t kMaxUnexpectedBytes = std::size_t{64} << 20;

class MessageLane {
 public:
  explicit MessageLane(std::shared_ptr<GroupCore> core);
  ~MessageLane() { close(); }

  Work send(ConstBuffer data, int destination, int tag, std::chrono::milliseconds timeout);
  Work recv(Buffer data, int source, int tag, std::chrono::milliseconds timeout);
  // From any rank; `source` gets its number.
  Work recv_any(Buffer data, int* source, int tag, std::chrono::milliseconds timeout);
  // Makes the thread check whether the group has failed. From any thread.
  void wake();
  // Sends what was issued, within its deadlines; receives that are still open fail.
  void close();

 private:
  struct Outgoing {
    std::array<std::byte, kMessageHeaderBytes> header;
    std::size_t header_sent = 0;
    std::span<const std::byte> rest;
    Deadline deadline;
    std::string name;  // "send(...) to rank 3, tag 0"
    Deadline::Clock::time_point started;
    std::shared_ptr<detail::WorkState> work;
  };
  struct Posted {
    Buffer data;
    int tag;
    Deadline deadline;
    std::string name;
    Deadline::Clock::time_point started;
    std::shared_ptr<detail::WorkState> work;
    int* source = nullptr;    // of a receive from any rank
    std::uint64_t order = 0;  // of issue: receives from one rank and from any rank compete for a message
  };
  struct Unexpected {
    MessageHeader header;
    Bytes payload;
  };
  // The message that is coming in.
  struct Incoming {
    std::array<std::byte, kMessageHeaderBytes> raw{};
    std::size_t raw_received = 0;
    MessageHeader header;
    bool placed = false;           // the destination of the payload is decided
    std::optional<Posted> target;  // straight into the buffer of this receive
    Bytes buffer;                  // otherwise kept here
    std::size_t received = 0;
  };
  // When a link has ended, or when it was found that there will be none; and how.
  struct End {
    Deadline::Clock::time_point when;
    std::string how;
  };
  struct Peer {
    Channel to;                 // the link for messages to it, once it is connected
    Channel from;               // the link that it connected for its messages
    std::string not_connected;  // why the last attempt has failed, if it has
    std::deque<Outgoing> outgoing;
    std::list<Posted> posted;
    std::deque<Unexpected> unexpected;
    std::size_t unexpected_bytes = 0;
    Incoming incoming;
    std::optional<End> to_ended;
    std::optional<End> from_ended;
    // An operation waits to receive from this peer.
    bool receives() const { return !posted.empty() || incoming.target; }
    // Why an operation can no longer succeed.
    const End* ended() const {
      if (to_ended && !outgoing.empty()) return &*to_ended;
      return from_ended && receives() ? &*from_ended : nullptr;
    }
  };
  struct Completion {
    std::shared_ptr<detail::WorkState> work;
    Status outcome;
  };

  // All below: with mutex_ held.
  Status start();
  void serve();
  void poll_once(std::unique_lock<std::mutex>& lock);
  void settle(std::shared_ptr<detail::WorkState> work, Status outcome);
  // Completes what was settled, without the mutex: continuations may issue new messages.
  void complete_settled(std::unique_lock<std::mutex>& lock);
  // Starts to connect to the peers to which something is to be sent, and takes what peers have connected.
  void connect_links();
  void connect_to(int rank, std::chrono::milliseconds time);
  // Finds peers that have left without ever having connected.
  void find_ended(Deadline::Clock::time_point now);
  // Settles an operation that cannot begin.
  bool refuse(const std::shared_ptr<detail::WorkState>& work, const std::string& name, bool needs_thread);
  void write_to(int rank);
  void read_from(int rank);
  Status receive_header(int rank, bool& blocked);
  Status receive_payload(int rank, bool& blocked);
  Status place_incoming(int rank);
  void finish_incoming(int rank);
  std::optional<Posted> take_posted(int rank, int tag);
  // Delivers a kept message of `source` with the receive's tag, if there is one.
  bool deliver_kept(int source, Posted& posted);
  Status check_fit(int source, const MessageHeader& header, const Posted& posted) const;
  void deliver(int source, Posted& posted, const Unexpected& message);
  void expire(Deadline::Clock::time_point now);
  Deadline next_deadline() const;
  void fail_all();
  bool wants_to_read(const Peer& peer) const;
  bool all_sent() const;
  // Whether no other rank can send any more.
  bool all_ended(Deadline::Clock::time_point now) const;

  const std::shared_ptr<GroupCore> core_;
  UniqueFd wake_fd_;
  std::mutex mutex_;
  RankVector<Peer> peers_;           // guarded by mutex_
  std::list<Posted> from_any_;       // guarded by mutex_: receives from any rank
  std::uint64_t posted_ = 0;         // guarded by mutex_: how many receives were issued
  bool closing_ = false;             // guarded by mutex_
  std::vector<Completion> settled_;  // guarded by mutex_
  std::thread thread_;               // guarded by mutex_ until joined
  LinkConnectors connectors_;        // guarded by mutex_ until the thread was joined
};

}  // namespace lockstep
