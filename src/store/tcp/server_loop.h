// The thread of a TcpStoreServer: accepts, reads, executes requests, sends answers. One epoll, nothing blocks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/net/accept_channel.h"
#include "base/net/refusal_log.h"
#include "base/net/stranger_budget.h"
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

  ServerLoop(UniqueFd listener, StoreServerOptions options);
  Status watch(int fd, std::uint32_t events);

  void accept_clients();
  void add_client(UniqueFd fd);
  // Closes connections that exceed the budget for those that are not authenticated.
  void evict_excess(int newest);
  // Closes it, unless it turns out to have sent its first message.
  void make_room(ServerConnection& connection);
  void evict(ServerConnection& connection);
  void lack_descriptors(const Status& why);
  void pause_accepting(Clock::time_point until);
  void resume_accepting();

  // It is authenticated or ends.
  void leave_strangers(int fd);

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
  const AcceptRules rules_;
  UniqueFd listener_;
  UniqueFd epoll_;
  UniqueFd wake_;
  std::atomic<bool> stopping_{false};

  // Only the loop's thread uses the members below.
  RequestExecutor executor_;
  std::unordered_map<int, std::unique_ptr<ServerConnection>> clients_;  // by fd
  StrangerBudget strangers_;                                            // those that are not authenticated
  RefusalLog refusals_;
  std::vector<ServerConnection*> doomed_;
  std::vector<int> unfinished_;  // have input left that epoll may not report
  bool accepting_ = true;
  Clock::time_point accept_again_{};
  Clock::time_point warn_again_{};  // that it cannot accept
};

}  // namespace lockstep
