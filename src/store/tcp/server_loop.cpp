#include "store/tcp/server_loop.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/log.h"
#include "base/net/socket.h"
#include "base/printable.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

constexpr int kAcceptBatch = 64;
// If there are too many unauthenticated connections, one that had this long for its three short messages is closed to
// make room for the next. Younger ones are kept: a burst of legitimate clients waits in the backlog.
constexpr auto kFairHandshakeTime = 500ms;
// Until accept is tried again when the process has no descriptors left.
constexpr auto kAcceptPause = 100ms;
constexpr auto kWarningInterval = 1s;

}  // namespace

Result<std::unique_ptr<ServerLoop>> ServerLoop::create(UniqueFd listener, StoreServerOptions options) {
  std::unique_ptr<ServerLoop> loop(new ServerLoop(std::move(listener), std::move(options)));
  if (!loop->epoll_.valid() || !loop->wake_.valid()) {
    return Status(StatusCode::resource_exhausted,
                  fmt::format("cannot create epoll and eventfd descriptors: {}", errno_text(errno)));
  }
  LOCKSTEP_RETURN_IF_ERROR(loop->watch(loop->wake_.get(), EPOLLIN));
  LOCKSTEP_RETURN_IF_ERROR(loop->watch(loop->listener_.get(), EPOLLIN));
  return loop;
}

ServerLoop::ServerLoop(UniqueFd listener, StoreServerOptions options)
    : options_(std::move(options)),
      check_([](const ConnectionIdentity& identity) {
        if (identity.role == "store") return Status();
        return Status(
            StatusCode::protocol_error,
            fmt::format("this is a store, which does not accept a '{}' connection", printable(identity.role)));
      }),
      listener_(std::move(listener)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      executor_(options_.limits, [this](ServerConnection& connection, const Status& why) { doom(connection, why); }) {}

Status ServerLoop::watch(int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return Status(StatusCode::resource_exhausted, fmt::format("epoll cannot watch a socket: {}", errno_text(errno)));
}

void ServerLoop::stop() {
  stopping_ = true;
  const std::uint64_t one = 1;
  // Fails only if the counter is full, and then the loop is awake.
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
}

void ServerLoop::run() {
  std::array<epoll_event, 256> events;
  while (!stopping_) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), poll_timeout_ms());
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == wake_.get()) continue;
      if (fd == listener_.get()) {
        accept_clients();
      } else if (const auto client = clients_.find(fd); client != clients_.end()) {
        handle(*client->second.connection, events[i].events);
      }
    }
    expire(Clock::now());
    // Only now: within a batch of events, a descriptor must always belong to the same client.
    finish_batch();
  }
}

int ServerLoop::poll_timeout_ms() const {
  auto next = executor_.next_expiry();
  if (!unauthenticated_.empty()) {
    next = std::min(next, unauthenticated_.front()->accepted_at() + options_.handshake_timeout);
  }
  if (!accepting_) next = std::min(next, accept_again_);
  return next == Clock::time_point::max() ? -1 : Deadline::at(next).poll_timeout_ms();
}

void ServerLoop::expire(Clock::time_point now) {
  executor_.expire_waits(now);
  while (!unauthenticated_.empty() && unauthenticated_.front()->accepted_at() + options_.handshake_timeout <= now) {
    doom(*unauthenticated_.front(),
         Status(StatusCode::timed_out,
                fmt::format("no proof of the job's secret within {} ms", options_.handshake_timeout.count())));
  }
  if (!accepting_ && accept_again_ <= now) resume_accepting();
}

void ServerLoop::accept_clients() {
  for (int i = 0; i < kAcceptBatch && make_room_for_unauthenticated(); ++i) {
    auto fd = accept_from(listener_.get(), Deadline::after(0s));
    if (fd.ok()) {
      add_client(std::move(*fd));
      continue;
    }
    if (fd.status().code() != StatusCode::timed_out) {
      log_warn("the store cannot accept: {}", fd.status().message());
      pause_accepting(Clock::now() + kAcceptPause);
    }
    return;
  }
}

bool ServerLoop::make_room_for_unauthenticated() {
  // At least one, or no client could ever connect.
  const auto limit = std::max<std::size_t>(options_.limits.max_unauthenticated_connections, 1);
  if (unauthenticated_.size() < limit) return true;
  ServerConnection& oldest = *unauthenticated_.front();
  const auto due = oldest.accepted_at() + kFairHandshakeTime;
  if (due > Clock::now()) {
    pause_accepting(due);
    return false;
  }
  const Status why(
      StatusCode::unavailable,
      fmt::format("too slow while {} connections wait to be authenticated; try again", unauthenticated_.size()));
  oldest.queue(format_refusal(why));
  [[maybe_unused]] const Status sent = oldest.flush();
  doom(oldest, why);
  return true;
}

void ServerLoop::pause_accepting(Clock::time_point until) {
  accepting_ = false;
  accept_again_ = until;
  epoll_event event{};
  event.data.fd = listener_.get();
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event);
}

void ServerLoop::resume_accepting() {
  accepting_ = true;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = listener_.get();
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event);
}

void ServerLoop::add_client(UniqueFd fd) {
  if (clients_.size() >= options_.limits.max_connections) {
    const Status why(StatusCode::resource_exhausted,
                     fmt::format("the store's limit max_connections = {} is reached", options_.limits.max_connections));
    // As much as the socket accepts at once, without waiting for the client.
    [[maybe_unused]] const Status sent = send_all(fd.get(), format_refusal(why), Deadline::after(0s));
    if (Clock::now() - last_full_warning_ > kWarningInterval) {
      last_full_warning_ = Clock::now();
      log_warn("refused a connection from {}: {}", peer_text(fd.get()), why.message());
    }
    return;
  }
  const int number = fd.get();
  auto connection = std::make_unique<ServerConnection>(std::move(fd), options_.secret, check_, options_.limits);
  connection->epoll_events = EPOLLIN;
  if (const Status watched = watch(number, EPOLLIN); !watched.ok()) {
    log_warn("refused a connection from {}: {}", connection->peer(), watched.message());
    return;
  }
  const auto place = unauthenticated_.insert(unauthenticated_.end(), connection.get());
  clients_.emplace(number, Client{std::move(connection), place});
}

void ServerLoop::leave_unauthenticated(ServerConnection& connection) {
  Client& client = clients_.at(connection.fd());
  if (client.unauthenticated == unauthenticated_.end()) return;
  unauthenticated_.erase(client.unauthenticated);
  client.unauthenticated = unauthenticated_.end();
  if (!accepting_) resume_accepting();
}

void ServerLoop::handle(ServerConnection& connection, std::uint32_t events) {
  if (connection.doomed) return;
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
    if (const Status status = connection.read_some(); !status.ok()) {
      doom(connection, status);
      return;
    }
    if (connection.authenticated()) leave_unauthenticated(connection);
  }
  settle(connection);
}

void ServerLoop::settle(ServerConnection& connection) {
  bool more = true;
  while (more && !connection.congested()) {
    more = connection.authenticated() && executor_.serve(connection);
    if (connection.doomed) return;
    if (const Status status = connection.flush(); !status.ok()) {
      doom(connection, status);
      return;
    }
  }
  const std::uint32_t events =
      (connection.congested() ? 0U : static_cast<std::uint32_t>(EPOLLIN)) | (connection.has_output() ? EPOLLOUT : 0U);
  if (events == connection.epoll_events) return;
  connection.epoll_events = events;
  epoll_event event{};
  event.events = events;
  event.data.fd = connection.fd();
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.fd(), &event);
}

void ServerLoop::doom(ServerConnection& connection, const Status& why) {
  if (connection.doomed) return;
  connection.doomed = true;
  doomed_.push_back(&connection);
  leave_unauthenticated(connection);
  if (!connection.authenticated()) {
    // A connection that is closed before authentication is a probe of the port, by a launcher or a load balancer.
    log(why.code() == StatusCode::peer_lost ? LogLevel::debug : LogLevel::warn, "refused a connection from {}: {}",
        connection.peer(), why.message());
  } else if (why.code() == StatusCode::peer_lost) {
    log_debug("the store's client {} is gone: {}", connection.peer(), why.message());
  } else {
    log_warn("the store drops its client {}: {}", connection.peer(), why.message());
  }
}

void ServerLoop::finish_batch() {
  // Each may wake or close others: wills are changes, and changes cause answers.
  for (;;) {
    if (ServerConnection* const connection = executor_.take_woken()) {
      if (!connection->doomed) settle(*connection);
    } else if (!doomed_.empty()) {
      ServerConnection* const doomed = doomed_.back();
      doomed_.pop_back();
      close_client(*doomed);
    } else {
      return;
    }
  }
}

void ServerLoop::close_client(ServerConnection& connection) {
  executor_.forget(connection);
  const auto wills = std::move(connection.wills);
  const std::string peer = connection.peer();
  clients_.erase(connection.fd());
  executor_.execute_wills(wills, peer);
}

}  // namespace lockstep
