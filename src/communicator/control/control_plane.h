// The control links of a rank and the thread that serves them: it alone reads and writes these sockets, sends
// heartbeats to other hosts, and detects at once that a peer's process or link has ended.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/net/channel.h"
#include "base/unique_fd.h"
#include "communicator/control/control_message.h"
#include "lockstep/base/deadline.h"

namespace lockstep {

// Called on the control thread. Must not block for long; may call ControlPlane::send.
class ControlEvents {
 public:
  virtual ~ControlEvents() = default;
  virtual void on_control_message(int rank, ControlMessage message, UniqueFd fd) = 0;
  // The connection has ended; `how` is human-readable. Nothing more comes from this rank.
  virtual void on_control_closed(int rank, const std::string& how) = 0;
  // Nothing was heard from this rank for longer than the peer timeout, or, if it has sent nothing yet, for longer than
  // forming the group may take. Reported once.
  virtual void on_control_silent(int rank, Deadline::Duration silence) = 0;
  // Called in every turn of the thread; returns when it should be called again at the latest.
  virtual Deadline::Clock::time_point on_control_turn(Deadline::Clock::time_point now) = 0;
};

struct ControlLink {
  int rank = 0;
  Channel socket;
  // Both sides send heartbeats, and a peer that sends nothing is silent. Links without them only show the end of a
  // process.
  bool heartbeats = true;
};

// A descriptor that a message carries.
struct Attachment {
  int fd = -1;
  std::shared_ptr<const void> hold = {};  // keeps it open
};

// How often heartbeats are sent, and how often a rank looks whether peers are silent.
std::chrono::milliseconds heartbeat_interval(std::chrono::milliseconds peer_timeout);
std::chrono::milliseconds watch_interval(std::chrono::milliseconds peer_timeout);

class ControlPlane {
 public:
  // `forming_timeout`: how long a peer may still be forming the group, and send nothing.
  ControlPlane(std::vector<ControlLink> links, std::chrono::milliseconds peer_timeout,
               std::chrono::milliseconds forming_timeout, ControlEvents& events);
  // Ends the thread. What was not sent by then is dropped: see flush_and_stop.
  ~ControlPlane();

  // Starts the thread. Separate from the constructor because events may come at once, if a peer has
  // ended already, and their receiver must be able to use this object then.
  // resource_exhausted: there is no thread for it.
  [[nodiscard]] Status start();
  // Queues a message; never blocks. Dropped if there is no link to `rank`. `attachment`: Unix sockets only.
  void send(int rank, const ControlMessage& message, Attachment attachment = {});
  // To all linked ranks.
  void broadcast(const ControlMessage& message);
  // Makes the thread take a turn.
  void wake();
  // Sends what is queued, until the deadline, ends the connections and the thread.
  void flush_and_stop(Deadline deadline);

 private:
  struct Outgoing {
    Bytes frame;
    std::size_t sent = 0;
    Attachment attachment = {};
  };
  struct Peer {
    // Constant after construction.
    int rank = 0;
    bool heartbeats = true;
    // Owned by the control thread.
    Channel socket;
    Bytes received;
    std::vector<UniqueFd> fds;
    Deadline::Clock::time_point last_heard;
    bool heard = false;
    bool reported_silent = false;
    bool retries = false;  // the kernel was short of memory: try to send again after a pause
    // Guarded by mutex_.
    std::deque<Outgoing> outbox;
  };

  void run();
  void queue_heartbeat();
  // After flush_and_stop(): the deadline for sending what is queued.
  std::optional<Deadline> stop_requested();
  // Reads what the handshakes have read ahead, which poll(2) does not report.
  void read_buffered();
  void poll_once(Deadline::Duration timeout);
  // Reads and handles what has arrived; returns how the connection has ended, if it has.
  std::optional<std::string> read_from(Peer& peer);
  void parse_received(Peer& peer);
  // True if nothing is left to send. If sending fails for a reason other than the peer's end, the connection is closed:
  // a peer that misses a message would wait for it.
  bool write_to(Peer& peer);
  // The same; returns the errno of such a failure in `error`.
  bool write_some(Peer& peer, int* error);
  void close_link(Peer& peer, const std::string& how);
  void report_silent_peers(Deadline::Clock::time_point now);

  ControlEvents& events_;
  const std::chrono::milliseconds peer_timeout_;
  const std::chrono::milliseconds until_first_heard_;
  const std::chrono::milliseconds interval_;
  UniqueFd wake_fd_;
  std::vector<Peer> peers_;  // those that are linked, by rank

  std::mutex mutex_;
  bool stopping_ = false;                                                    // guarded by mutex_
  Deadline flush_until_ = Deadline::at(Deadline::Clock::time_point::min());  // guarded by mutex_
  std::thread thread_;
};

}  // namespace lockstep
