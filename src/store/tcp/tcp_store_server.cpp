#include "store/tcp/tcp_store_server.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <thread>

#include "base/net/auth.h"
#include "base/net/resolve.h"
#include "base/net/socket.h"
#include "base/start_thread.h"
#include "base/unique_fd.h"
#include "store/tcp/server_loop.h"

namespace lockstep {

class TcpStoreServer::Running {
 public:
  Running(std::unique_ptr<ServerLoop> loop, const SocketAddress& address) : address_(address), loop_(std::move(loop)) {}
  ~Running() {
    loop_->stop();
    if (thread_.joinable()) thread_.join();
  }
  Status start() {
    auto thread = start_thread("serves the store", [this] { loop_->run(); });
    if (!thread.ok()) return thread.status();
    thread_ = *std::move(thread);
    return {};
  }
  const SocketAddress& address() const { return address_; }

 private:
  const SocketAddress address_;
  const std::unique_ptr<ServerLoop> loop_;
  std::thread thread_;
};

namespace {

Result<UniqueFd> adopt(UniqueFd fd) {
  int listening = 0;
  socklen_t size = sizeof(listening);
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening == 0) {
    return Status(StatusCode::invalid_argument, fmt::format("fd {} is not a listening socket", fd.get()));
  }
  // The loop must never block in accept, and a child process must not keep the port.
  if (::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK) != 0 ||
      ::fcntl(fd.get(), F_SETFD, FD_CLOEXEC) != 0) {
    return Status(StatusCode::invalid_argument, fmt::format("fd {}: {}", fd.get(), errno_text(errno)));
  }
  return fd;
}

Result<UniqueFd> bind_listener(const StoreServerOptions& options) {
  const auto addresses = resolve(options.host, options.port);
  if (!addresses.ok()) return addresses.status();
  LOCKSTEP_RETURN_IF_ERROR(may_bind(addresses->front(), options.secret));
  return listen_on(addresses->front());
}

}  // namespace

Result<std::unique_ptr<TcpStoreServer>> TcpStoreServer::start(StoreServerOptions options) {
  UniqueFd given(options.listening_fd);
  auto listener = given.valid() ? adopt(std::move(given)) : bind_listener(options);
  if (!listener.ok()) return listener.status().with_context("cannot start the store");
  const auto address = local_address(listener->get());
  if (!address.ok()) return address.status();
  LOCKSTEP_RETURN_IF_ERROR(may_bind(*address, options.secret).with_context("cannot start the store"));
  auto loop = ServerLoop::create(std::move(*listener), std::move(options));
  if (!loop.ok()) return loop.status().with_context("cannot start the store");
  auto running = std::make_unique<Running>(std::move(*loop), *address);
  LOCKSTEP_RETURN_IF_ERROR(running->start().with_context("cannot start the store"));
  return std::unique_ptr<TcpStoreServer>(new TcpStoreServer(std::move(running)));
}

TcpStoreServer::TcpStoreServer(std::unique_ptr<Running> running) : running_(std::move(running)) {}
TcpStoreServer::~TcpStoreServer() = default;

std::uint16_t TcpStoreServer::port() const { return running_->address().port(); }

std::string TcpStoreServer::address() const { return running_->address().to_string(); }

}  // namespace lockstep
