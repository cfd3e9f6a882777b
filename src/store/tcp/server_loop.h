// The thread of a TcpStoreServer: accepts, reads, executes requests, sends answers. One epoll, nothing blocks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/net/auth.h"
#include "base/unique_fd.h"
#include "store/tcp/request_executor.h"
#include "store/tcp/server_connection.h"
#include "store/tcp/tcp_store_server.h"

namespace lockstep {

class ServerLoop {
 public:
  // Takes ownership of a listening socket. The error names the missing system resource.
  static Result<std::unique_ptr<ServerLoop>> create(UniqueFd listener, StoreServerOptions options);

  // Until stop(). Called by one thread, once.
  void run();
  // From any thread; run() returns soon after.
  void stop();

 private:
  using Clock = ServerConnection::Clock;
  // In order of arrival, which is the order of their handshake deadlines too.
  using Unauthenticated = std::list<ServerConnection*>;
  struct Client {
    std::unique_ptr<ServerConnection> connection;
    Unauthenticated::iterator unauthenticated;  // end() once authenticated
  };

  ServerLoop(UniqueFd listener, StoreServerOptions options);
  Status watch(int fd, std::uint32_t events);

  void accept_clients();
  void add_client(UniqueFd fd);
  bool make_room_for_unauthenticated();
  void pause_accepting(Clock::time_point until);
  void resume_accepting();

  void leave_unauthenticated(ServerConnection& connection);

  void handle(ServerConnection& connection, std::uint32_t events);
  // Serves buffered requests and sends queued answers, as far as possible without blocking.
  void settle(ServerConnection& connection);
  // Closes the connection at the end of the batch of events.
  void doom(ServerConnection& connection, const Status& why);
  void finish_batch();
  void close_client(ServerConnection& connection);

  int poll_timeout_ms() const;
  void expire(Clock::time_point now);

  const StoreServerOptions options_;
  const IdentityCheck check_;
  UniqueFd listener_;
  UniqueFd epoll_;
  UniqueFd wake_;
  std::atomic<bool> stopping_{false};

  // Only the loop's thread uses the members below.
  RequestExecutor executor_;
  std::unordered_map<int, Client> clients_;  // by fd
  Unauthenticated unauthenticated_;
  std::vector<ServerConnection*> doomed_;
  bool accepting_ = true;
  Clock::time_point accept_again_{};
  Clock::time_point last_full_warning_{};
};

}  // namespace lockstep
