// One direction of one operation with one peer: bytes in order, striped over the connections.
//
// The bytes of a direction form a stream with positions from 0. Its memory is given piece by piece
// (push), as buffers become known or ready. With k connections ("lanes") stripe i of the stream,
// of `stripe_bytes` bytes, travels on lane i mod k, so that both ends know where every byte goes
// without saying so. Each lane that is used starts with the operation's header; the first lane is
// used even where the stream is empty.
//
// No thread-safety: a flow belongs to its StreamTransport.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

inline constexpr std::size_t kStreamHeaderBytes = 64;
using StreamHeaderBytes = std::array<std::byte, kStreamHeaderBytes>;

// Pieces of memory in stream order. Memory of earlier operations is kept, so that a steady state
// does not allocate.
class PieceQueue {
 public:
  void clear();
  void push(std::byte* data, std::size_t size);
  // Position behind the last byte pushed.
  std::size_t end() const { return end_; }
  // Forgets pieces that end at or before `position`.
  void retire(std::size_t position);
  // The memory at `position`, which must be at or after every retired one: contiguous bytes up to
  // the end of the piece; empty at end().
  std::span<std::byte> at(std::size_t position) const;

 private:
  struct Piece {
    std::byte* data;
    std::size_t begin;
    std::size_t size;
  };
  std::vector<Piece> pieces_;
  std::size_t head_ = 0;
  std::size_t end_ = 0;
};

// One connection's part in one direction.
struct Lane {
  int fd = -1;
  std::size_t position = 0;     // of the next byte of the stream that this lane moves
  std::size_t header_done = 0;  // bytes of the header that are through
  bool blocked = false;         // the last call moved less than asked for
  StreamHeaderBytes header{};   // what was received; unused in the sending direction
};

enum class StreamDirection { send, receive };

class StreamFlow {
 public:
  StreamFlow(StreamDirection direction, std::span<const int> fds, std::size_t stripe_bytes);

  // A new operation: the stream is empty, its first lane is due to move a header.
  void open();
  void close() { open_ = false; }
  bool is_open() const { return open_; }
  void push(std::byte* data, std::size_t size) { pieces_.push(data, size); }

  // All bytes before this position are through.
  std::size_t completed() const { return completed_; }
  std::size_t pushed() const { return pieces_.end(); }
  // Nothing is left to move: all that was pushed and the headers are through.
  bool idle() const;
  // The lane has something to move now.
  bool wants(std::size_t lane) const;

  std::span<Lane> lanes() { return lanes_; }

  enum class Outcome { nothing, moved, closed, failed };
  struct Moved {
    Outcome outcome = Outcome::nothing;
    int error = 0;                // errno where failed
    bool header_arrived = false;  // receive: the lane's header is complete as of this call
  };
  // One system call on a lane that wants to move; at most `limit` bytes of payload. `header` is
  // sent; what is received goes to the lane.
  Moved move(std::size_t lane, const StreamHeaderBytes& header, std::size_t limit);

 private:
  static constexpr std::size_t kMaxParts = 16;

  std::size_t position_behind(std::size_t position, std::size_t bytes) const;
  std::size_t gather(const Lane& lane, std::size_t limit, std::span<iovec> parts, std::size_t& used) const;
  void account(Lane& lane, std::size_t bytes);

  StreamDirection direction_;
  std::size_t stripe_bytes_;
  bool open_ = false;
  std::size_t completed_ = 0;
  PieceQueue pieces_;
  std::vector<Lane> lanes_;
};

}  // namespace lockstep
