// Executes a TcpStoreServer's requests on the state: each at once, or later when its keys appear.
// Used by the server's thread only.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lockstep/store/store.h"
#include "store/store_state.h"
#include "store/tcp/server_connection.h"
#include "store/tcp/store_protocol.h"

namespace lockstep {

class RequestExecutor {
 public:
  using Clock = ServerConnection::Clock;
  // Called for a connection that must be closed; it stays valid until forget().
  using Doom = std::function<void(ServerConnection& connection, const Status& why)>;

  RequestExecutor(const StoreLimits& limits, Doom doom) : limits_(limits), doom_(std::move(doom)), state_(limits) {}

  // Serves buffered requests. True if it stopped because of too many pending answers, not because there are no
  // requests.
  bool serve(ServerConnection& connection);
  // Answers the waits whose deadline has passed.
  void expire_waits(Clock::time_point now);
  // When expire_waits() has something to do next; max(): never.
  Clock::time_point next_expiry() const;
  // The next connection that got answers because of another client's change or a timeout; null if there is none left.
  ServerConnection* take_woken();
  // Ends the waits of a connection that is about to be destroyed.
  void forget(ServerConnection& connection);
  // Sets the keys of a client's last wills. `peer` is for messages.
  void execute_wills(const std::map<std::string, std::string>& wills, const std::string& peer);

 private:
  void execute(ServerConnection& connection, store_protocol::Request request);
  Status keep_will(ServerConnection& connection, const std::string& key, const std::string& value);
  void answer(ServerConnection& connection, const store_protocol::Answer& answer);
  void begin_wait(ServerConnection& connection, store_protocol::Request request);
  void finish_wait(ServerConnection& connection, std::uint64_t id);
  void forget_wait(ServerConnection& connection, std::uint64_t id, bool completed);

  const StoreLimits limits_;
  const Doom doom_;
  StoreState state_;
  ServerConnection::Timers timers_;
  std::vector<ServerConnection*> woken_;
};

}  // namespace lockstep
