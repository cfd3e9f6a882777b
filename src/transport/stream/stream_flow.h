// One direction of one operation with one peer: bytes in order, striped over the connections.
//
// The bytes of a direction form a stream with positions from 0. Its memory is queued in ranges
// (push), as buffers become known or ready. With k connections, stripe i of the stream,
// of `stripe_bytes` bytes, travels on connection i mod k, so that both ends can compute where every
// byte goes. Each connection that is used starts with the operation's header; the first connection is
// used even if the stream is empty.
//
// Not thread-safe: a flow belongs to its StreamTransport.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "base/net/channel.h"

namespace lockstep {

inline constexpr std::size_t kStreamHeaderBytes = 64;
using StreamHeaderBytes = std::array<std::byte, kStreamHeaderBytes>;

// Ranges of memory in stream order. The queue keeps its capacity between operations, so that a steady
// state does not allocate.
class MemoryQueue {
 public:
  void clear();
  void push(std::byte* data, std::size_t size);
  // The position after the last byte pushed.
  std::size_t end() const { return end_; }
  // Drops ranges that end at or before `position`.
  void retire(std::size_t position);
  // The memory at `position`, which must be at or after every retired one: contiguous bytes up to
  // the end of the range; empty at end().
  std::span<std::byte> at(std::size_t position) const;

 private:
  struct Range {
    std::byte* data;
    std::size_t begin;
    std::size_t size;
  };
  std::vector<Range> ranges_;
  std::size_t head_ = 0;
  std::size_t end_ = 0;
};

// One direction of one connection.
struct StreamConnection {
  Channel* channel = nullptr;
  std::size_t position = 0;     // of the next byte of the stream that this connection moves
  std::size_t header_done = 0;  // bytes of the header that were sent or received
  bool blocked = false;         // the last call moved fewer bytes than requested
  StreamHeaderBytes header{};   // what was received; unused in the sending direction
};

enum class StreamDirection { send, receive };

class StreamFlow {
 public:
  StreamFlow(StreamDirection direction, std::size_t stripe_bytes)
      : direction_(direction), stripe_bytes_(stripe_bytes) {}
  // The connections that carry it. An open flow may get them later: until then, nothing moves.
  void connect(std::span<Channel> channels);
  bool connected() const { return !connections_.empty(); }

  // A new operation: the stream is empty, and its first connection has a header to move.
  void open();
  void close() { open_ = false; }
  bool is_open() const { return open_; }
  void push(std::byte* data, std::size_t size) { memory_.push(data, size); }

  // All bytes before this position were sent or received.
  std::size_t completed() const { return completed_; }
  std::size_t pushed() const { return memory_.end(); }
  // Nothing is left to move: neither headers nor bytes that were pushed.
  bool idle() const;
  // The connection has something to move now.
  bool wants(std::size_t connection) const;

  std::span<StreamConnection> connections() { return connections_; }

  enum class Outcome { nothing, moved, closed, failed };
  struct Moved {
    Outcome outcome = Outcome::nothing;
    int error = 0;                // errno if failed
    bool header_arrived = false;  // receive: the connection's header is complete as of this call
  };
  // One call on a connection for which wants() is true; at most `limit` bytes of payload. `header` is
  // sent; a received header is stored in the connection.
  Moved move(std::size_t connection, const StreamHeaderBytes& header, std::size_t limit);

 private:
  static constexpr std::size_t kMaxRanges = 16;

  std::size_t position_after(std::size_t position, std::size_t bytes) const;
  std::size_t gather(const StreamConnection& connection, std::size_t limit, std::span<iovec> ranges,
                     std::size_t& used) const;
  void account(StreamConnection& connection, std::size_t bytes);
  void reset_connections();

  StreamDirection direction_;
  std::size_t stripe_bytes_;
  bool open_ = false;
  std::size_t completed_ = 0;
  MemoryQueue memory_;
  std::vector<StreamConnection> connections_;
};

}  // namespace lockstep
