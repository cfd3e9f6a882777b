// A TcpStore's connection: sends requests of many threads, and passes each answer to its thread.
//
// It has no thread of its own. One of the threads that wait for answers reads the socket for all; when it has its own
// answer, or its deadline passes, another takes over.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "base/net/channel.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"
#include "store/tcp/store_protocol.h"
#include "store/tcp/tcp_store.h"

namespace lockstep {

class TcpStore::Connection {
 public:
  // `address` is for messages.
  Connection(Channel channel, std::string address);

  // Sends the request (its id is assigned here) and waits for the answer, until 2 s after the
  // deadline: a server whose wait timed out must still be able to report which keys are
  // missing. The status of the answer, if it is an error, is returned as the error.
  Result<store_protocol::Answer> call(store_protocol::Request request, Deadline deadline);

  const std::string& address() const { return address_; }

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Pending {
    bool answered = false;
    store_protocol::Answer answer;
  };

  // Call all three with the mutex held; they release it while they work or wait.
  Status send(Lock& lock, const Bytes& frame, Deadline deadline);
  Status await(Lock& lock, Pending& pending, Deadline deadline);
  void read_answers(Lock& lock, Deadline deadline);

  Status take_frames(std::map<std::uint64_t, store_protocol::Answer>& answers);
  void fail(const Status& why);

  Channel channel_;
  const std::string address_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, Pending*> pending_;
  bool sending_ = false;  // a thread is writing to the socket
  bool reading_ = false;  // a thread is reading from it, and owns input_ and has_more_
  Status broken_;         // why no call can succeed anymore

  store_protocol::FrameBuffer input_;
  bool has_more_ = true;  // bytes may be waiting that poll does not report
};

}  // namespace lockstep
