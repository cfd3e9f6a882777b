// The server's side of one client's connection: bytes in, bytes out; nothing blocks. Used by the server's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "base/codec.h"
#include "base/net/accept_channel.h"
#include "base/net/channel.h"
#include "base/unique_fd.h"
#include "lockstep/base/status.h"
#include "store/store_state.h"
#include "store/tcp/store_protocol.h"

namespace lockstep {

class ServerConnection {
 public:
  using Clock = std::chrono::steady_clock;
  // (deadline, connection, request) of every wait; one entry per PendingWait.
  using Timers = std::multimap<Clock::time_point, std::pair<ServerConnection*, std::uint64_t>>;

  struct PendingWait {
    store_protocol::Request request;
    StoreState::WaiterId waiter = 0;
    Timers::iterator timer;
    std::size_t bytes = 0;
  };

  // References must outlive this.
  ServerConnection(UniqueFd fd, const AcceptRules& rules, const IdentityCheck& check, const StoreLimits& limits);

  int fd() const { return fd_; }
  // Of the client.
  const std::string& peer() const { return peer_; }
  bool authenticated() const { return channel_.valid(); }

  // Reads what is available, up to a limit. peer_lost: the client closed the connection, or it broke. During the
  // handshake a refusal is returned as the error, after its message to the client was sent as far as possible.
  Status read_some();
  // The last read_some() stopped at the limit: bytes may be left that epoll cannot see.
  bool has_more_input() const { return has_more_input_; }
  // Sends as much as the socket accepts.
  Status flush();
  void queue(Bytes frame);
  // Of a connection that is not authenticated: tells the client why, if that is possible at once.
  void refuse(const Status& why) { acceptor_->refuse(why); }
  // Likewise: see ChannelAcceptor.
  bool has_spoken() const { return acceptor_->has_spoken(); }

  // The next complete request, if there is one.
  Result<std::optional<store_protocol::FrameBuffer::Frame>> next_frame() { return input_.next(); }

  bool has_output() const { return queued_bytes_ > 0; }
  // Many answers are pending for this client, so its requests must wait.
  bool congested() const;
  // More answers are pending than a client that reads them can have.
  bool overflowing() const;

  std::map<std::uint64_t, PendingWait> waits;  // by request id
  std::size_t wait_bytes = 0;
  std::map<std::string, std::string> wills;
  std::size_t will_bytes = 0;
  std::uint32_t epoll_events = 0;  // as registered
  bool doomed = false;             // to be closed after the current event

 private:
  std::optional<ChannelAcceptor> acceptor_;  // until authenticated
  Channel channel_;                          // from then on
  const int fd_;
  const std::string peer_;
  bool has_more_input_ = false;
  store_protocol::FrameBuffer input_;
  std::deque<Bytes> output_;
  std::size_t sent_of_first_ = 0;
  std::size_t queued_bytes_ = 0;
};

}  // namespace lockstep
