#include "store/tcp/server_loop.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/log.h"
#include "base/net/fork_guard.h"
#include "base/net/socket.h"
#include "base/printable.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// Few, so that a flood of connections does not delay clients, and because what is evicted is closed only afterwards.
constexpr int kAcceptBatch = 16;
// Until accept is tried again when the process has no descriptors left.
constexpr auto kAcceptPause = 100ms;

}  // namespace

Result<std::unique_ptr<ServerLoop>> ServerLoop::create(UniqueFd listener, StoreServerOptions options) {
  std::unique_ptr<ServerLoop> loop(new ServerLoop(std::move(listener), std::move(options)));
  if (!loop->epoll_.valid() || !loop->wake_.valid()) {
    return Status(StatusCode::resource_exhausted,
                  fmt::format("cannot create epoll and eventfd descriptors: {}", errno_text(errno)));
  }
  LOCKSTEP_RETURN_IF_ERROR(loop->watch(loop->wake_.get(), EPOLLIN));
  LOCKSTEP_RETURN_IF_ERROR(loop->watch(loop->listener_.get(), EPOLLIN));
  close_in_forked_children(loop->listener_.get());
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
      rules_{.secret = options_.secret, .keys = LinkKeyRing(options_.secret, {ConnectionIdentity{.role = "store"}})},
      listener_(std::move(listener)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      executor_(options_.limits, [this](ServerConnection& connection, const Status& why) { doom(connection, why); }),
      strangers_(StrangerBudget::limits_of_process(options_.limits.max_unauthenticated_connections)) {}

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
        handle(*client->second, events[i].events);
      }
    }
    for (const int fd : std::exchange(unfinished_, {})) {
      if (const auto client = clients_.find(fd); client != clients_.end()) handle(*client->second, EPOLLIN);
    }
    expire(Clock::now());
    // Only now: within a batch of events, a descriptor must always belong to the same client.
    finish_batch();
  }
}

int ServerLoop::poll_timeout_ms() const {
  if (!unfinished_.empty()) return 0;
  auto next = executor_.next_expiry();
  if (const auto oldest = strangers_.oldest()) next = std::min(next, oldest->since + options_.handshake_timeout);
  if (const auto due = refusals_.due()) next = std::min(next, *due);
  if (!accepting_) next = std::min(next, accept_again_);
  return next == Clock::time_point::max() ? -1 : Deadline::at(next).poll_timeout_ms();
}

void ServerLoop::expire(Clock::time_point now) {
  executor_.expire_waits(now);
  for (auto oldest = strangers_.oldest(); oldest && oldest->since + options_.handshake_timeout <= now;
       oldest = strangers_.oldest()) {
    doom(*clients_.at(oldest->fd),
         Status(StatusCode::timed_out,
                fmt::format("no proof of the job's secret within {} ms", options_.handshake_timeout.count())));
  }
  if (!accepting_ && accept_again_ <= now) resume_accepting();
  refusals_.report(now);
}

void ServerLoop::accept_clients() {
  for (int i = 0; i < kAcceptBatch; ++i) {
    if (!strangers_.may_accept(Clock::now())) return pause_accepting(strangers_.retry_at());
    auto fd = accept_from(listener_.get(), Deadline::after(0s));
    if (!fd.ok()) {
      if (fd.status().code() != StatusCode::timed_out) lack_descriptors(fd.status());
      return;
    }
    const int number = fd->get();
    add_client(std::move(*fd));
    evict_excess(number);
  }
}

void ServerLoop::evict_excess(int newest) {
  while (const auto excess = strangers_.excess(newest, Clock::now())) make_room(*clients_.at(*excess));
}

// It may have sent something since it was polled.
void ServerLoop::make_room(ServerConnection& connection) {
  const bool silent = strangers_.is_silent(connection.fd());
  handle(connection, EPOLLIN);
  if (connection.doomed || connection.authenticated() || strangers_.is_silent(connection.fd()) != silent) return;
  evict(connection);
}

void ServerLoop::evict(ServerConnection& connection) {
  const Status why(StatusCode::unavailable,
                   fmt::format("too slow while {} connections wait to be authenticated; try again", strangers_.size()));
  connection.refuse(why);
  doom(connection, why);
}

// Strangers must not keep the job's own connections out. If there are none, descriptors may become free later.
void ServerLoop::lack_descriptors(const Status& why) {
  if (const auto stranger = strangers_.least_wanted()) return make_room(*clients_.at(*stranger));
  const auto now = Clock::now();
  pause_accepting(now + kAcceptPause);
  if (now < warn_again_) return;
  warn_again_ = now + RefusalLog::kInterval;
  log_warn("the store cannot accept connections for now: {}", why.message());
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
  if (clients_.size() - strangers_.size() >= options_.limits.max_connections) {
    const Status why(StatusCode::resource_exhausted,
                     fmt::format("the store's limit max_connections = {} is reached", options_.limits.max_connections));
    // As much as the socket accepts at once, without waiting for the client.
    [[maybe_unused]] const Status sent = send_all(fd.get(), format_refusal(why), Deadline::after(0s));
    return refusals_.refused(peer_text(fd.get()), why);
  }
  const auto from = peer_address(fd.get());
  if (!from.ok()) return;  // it has closed the connection again
  const int number = fd.get();
  auto connection = std::make_unique<ServerConnection>(std::move(fd), rules_, check_, options_.limits);
  connection->epoll_events = EPOLLIN;
  if (const Status watched = watch(number, EPOLLIN); !watched.ok()) {
    return refusals_.refused(connection->peer(), watched);
  }
  strangers_.add(number, *from, Clock::now());
  ServerConnection& added = *clients_.emplace(number, std::move(connection)).first->second;
  handle(added, EPOLLIN);  // what it sent while it waited in the backlog
}

void ServerLoop::leave_strangers(int fd) {
  if (strangers_.remove(fd) && !accepting_) resume_accepting();
}

void ServerLoop::handle(ServerConnection& connection, std::uint32_t events) {
  if (connection.doomed) return;
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
    if (const Status status = connection.read_some(); !status.ok()) {
      doom(connection, status);
      return;
    }
    if (connection.authenticated()) {
      leave_strangers(connection.fd());
    } else if (connection.has_spoken()) {
      strangers_.has_spoken(connection.fd());
    }
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
  if (connection.has_more_input() && !connection.congested()) unfinished_.push_back(connection.fd());
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
  leave_strangers(connection.fd());
  if (!connection.authenticated()) {
    refusals_.refused(connection.peer(), why);
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
