// A connected stream socket, encrypted with TLS or plain, with the semantics of a non-blocking socket.
//
// send() and receive() move what can be moved at once:
//   - fewer bytes than asked for, or would_block, mean that poll(2) will report when to continue: for POLLIN after
//     receive(), for POLLOUT after send(). If receive() returned all that was asked for, more may be waiting in memory
//     that poll(2) cannot see: call it again before polling.
//   - after a send() that moved fewer bytes than it was given, the next one must start with the bytes that were not
//     moved: they may be encrypted already.
// A damaged encrypted stream (bytes that were changed, lost, repeated or reordered on the way) is the error EBADMSG;
// nothing of the damaged record is returned. poll(2) reports it as readable, and the peer is told: its stream fails in
// the same way.
//
// One thread may send while another receives. A new channel of which the handshake has read ahead may have bytes
// buffered (has_buffered): receive before the first poll.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/net/io_result.h"
#include "base/net/tls_stream.h"
#include "base/unique_fd.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"

namespace lockstep {

class Channel {
 public:
  Channel();
  // Plain.
  Channel(UniqueFd fd);  // NOLINT(google-explicit-constructor): a plain channel is its socket
  // `tls` is established.
  Channel(UniqueFd fd, std::unique_ptr<TlsStream> tls);
  Channel(Channel&&) noexcept;
  Channel& operator=(Channel&&) noexcept;
  ~Channel();

  int fd() const { return fd_.get(); }
  bool valid() const { return fd_.valid(); }
  bool encrypted() const { return tls_ != nullptr; }
  void reset();

  IoResult send(std::span<const iovec> ranges);
  IoResult send(std::span<const std::byte> bytes);
  IoResult receive(std::span<const iovec> ranges);
  IoResult receive(std::span<std::byte> bytes);
  bool has_buffered() const;

 private:
  struct Tls;

  UniqueFd fd_;
  std::unique_ptr<Tls> tls_;  // null if plain
};

// Whole buffers or an error: a closed connection is peer_lost, the deadline is timed_out.
Status send_all(Channel& channel, std::span<const std::byte> bytes, Deadline deadline);
Status receive_all(Channel& channel, std::span<std::byte> bytes, Deadline deadline);

// Why a channel failed: the text of an IoResult::error.
std::string channel_error_text(int error);

}  // namespace lockstep
