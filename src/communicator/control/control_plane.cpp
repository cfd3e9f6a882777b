#include "communicator/control/control_plane.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/net/fd_passing.h"
#include "base/net/socket.h"
#include "base/start_thread.h"

namespace lockstep {
namespace {

using Clock = Deadline::Clock;
using std::chrono::milliseconds;

// How long to wait before sending again if the kernel is short of memory.
constexpr milliseconds kRetryPause{10};

}  // namespace

milliseconds heartbeat_interval(milliseconds peer_timeout) {
  return std::clamp(peer_timeout / 4, milliseconds(10), milliseconds(2000));
}

milliseconds watch_interval(milliseconds peer_timeout) {
  return std::min(heartbeat_interval(peer_timeout), milliseconds(1000));
}

ControlPlane::ControlPlane(std::vector<ControlLink> links, milliseconds peer_timeout, milliseconds forming_timeout,
                           ControlEvents& events)
    : events_(events),
      peer_timeout_(peer_timeout),
      until_first_heard_(std::max(peer_timeout, forming_timeout)),
      interval_(heartbeat_interval(peer_timeout)),
      wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      peers_(links.size()) {
  std::sort(links.begin(), links.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  for (std::size_t i = 0; i < links.size(); ++i) {
    peers_[i].rank = links[i].rank;
    peers_[i].heartbeats = links[i].heartbeats;
    peers_[i].socket = std::move(links[i].socket);
    peers_[i].last_heard = Clock::now();
  }
}

ControlPlane::~ControlPlane() { flush_and_stop(Deadline::after(Clock::duration::zero())); }

Status ControlPlane::start() {
  auto thread = start_thread("exchanges control messages", [this] { run(); });
  if (!thread.ok()) return thread.status();
  thread_ = *std::move(thread);
  return {};
}

void ControlPlane::wake() {
  const std::uint64_t one = 1;
  if (::write(wake_fd_.get(), &one, sizeof(one)) < 0) {
    // The counter is full: the thread is being woken already.
  }
}

void ControlPlane::send(int rank, const ControlMessage& message, Attachment attachment) {
  const auto peer = std::lower_bound(peers_.begin(), peers_.end(), rank,
                                     [](const Peer& each, int wanted) { return each.rank < wanted; });
  if (peer == peers_.end() || peer->rank != rank) return;
  {
    const std::lock_guard lock(mutex_);
    peer->outbox.push_back({format_control_message(message), 0, std::move(attachment)});
  }
  wake();
}

void ControlPlane::broadcast(const ControlMessage& message) {
  const Bytes frame = format_control_message(message);
  {
    const std::lock_guard lock(mutex_);
    for (auto& peer : peers_) peer.outbox.push_back({frame});
  }
  wake();
}

void ControlPlane::queue_heartbeat() {
  const Bytes frame = format_control_message(Heartbeat{});
  const std::lock_guard lock(mutex_);
  for (auto& peer : peers_) {
    // At most one for a peer that does not read.
    if (peer.heartbeats && peer.outbox.empty()) peer.outbox.push_back({frame});
  }
}

void ControlPlane::flush_and_stop(Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    if (!stopping_) flush_until_ = deadline;
    stopping_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
}

void ControlPlane::run() {
  auto next_heartbeat = Clock::now();
  read_buffered();
  while (true) {
    const auto now = Clock::now();
    if (now >= next_heartbeat) {
      queue_heartbeat();
      next_heartbeat = now + interval_;
    }
    // Before sending: what was queued before the request to stop is then sent below.
    const auto flush_until = stop_requested();
    const auto next_turn = std::min(events_.on_control_turn(now), next_heartbeat);
    bool all_sent = true;
    for (auto& peer : peers_) all_sent &= write_to(peer);
    if (flush_until && (all_sent || flush_until->expired())) break;
    poll_once(std::max(Clock::duration::zero(), next_turn - now));
    const auto after = Clock::now();
    // A long gap means that this process itself was stopped; what peers sent meanwhile is being
    // read now, so their silence is measured from here.
    if (after - now > interval_ + peer_timeout_ / 2) {
      for (auto& peer : peers_) peer.last_heard = after;
    }
    report_silent_peers(after);
  }
  for (auto& peer : peers_) {
    // Half-close first: a close with unread bytes would reset the connection and could discard our
    // goodbye.
    if (peer.socket.valid()) ::shutdown(peer.socket.fd(), SHUT_WR);
    peer.socket.reset();
  }
}

std::optional<Deadline> ControlPlane::stop_requested() {
  const std::lock_guard lock(mutex_);
  if (!stopping_) return std::nullopt;
  return flush_until_;
}

void ControlPlane::read_buffered() {
  for (auto& peer : peers_) {
    if (!peer.socket.has_buffered()) continue;
    if (const auto how = read_from(peer)) close_link(peer, *how);
  }
}

void ControlPlane::poll_once(Deadline::Duration timeout) {
  std::vector<pollfd> entries;
  std::vector<Peer*> polled;
  bool retries = false;
  entries.push_back({wake_fd_.get(), POLLIN, 0});
  polled.push_back(nullptr);
  {
    const std::lock_guard lock(mutex_);
    for (auto& peer : peers_) {
      if (!peer.socket.valid()) continue;
      retries |= peer.retries;
      const auto events = static_cast<short>(POLLIN | (peer.outbox.empty() || peer.retries ? 0 : POLLOUT));
      entries.push_back({peer.socket.fd(), events, 0});
      polled.push_back(&peer);
    }
  }
  if (retries) timeout = std::min<Deadline::Duration>(timeout, kRetryPause);
  const int ready = ::poll(entries.data(), entries.size(), Deadline::after(timeout).poll_timeout_ms());
  if (ready <= 0) return;
  if (entries[0].revents != 0) {
    std::uint64_t drained = 0;
    if (::read(wake_fd_.get(), &drained, sizeof(drained)) < 0) {
      // Nothing to drain: it was drained together with an earlier wake.
    }
  }
  // Closed connections come last: another peer may have reported why this one has ended.
  std::vector<std::pair<Peer*, std::string>> ended;
  for (std::size_t i = 1; i < entries.size(); ++i) {
    if ((entries[i].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
    if (auto how = read_from(*polled[i])) ended.emplace_back(polled[i], std::move(*how));
  }
  for (const auto& [peer, how] : ended) close_link(*peer, how);
}

std::optional<std::string> ControlPlane::read_from(Peer& peer) {
  std::array<std::byte, 16384> buffer;
  while (peer.socket.valid()) {
    const IoResult result =
        peer.socket.encrypted() ? peer.socket.receive(buffer) : receive_some(peer.socket.fd(), buffer, peer.fds);
    if (result.would_block) return std::nullopt;
    if (result.closed || result.error != 0) {
      if (result.error == EMFILE) {
        return fmt::format("descriptors of its memory were lost: {}; see ulimit -n", errno_text(EMFILE));
      }
      return result.error == 0 ? "the connection was closed" : channel_error_text(result.error);
    }
    peer.last_heard = Clock::now();
    peer.heard = true;
    peer.reported_silent = false;
    peer.received.insert(peer.received.end(), buffer.begin(),
                         buffer.begin() + static_cast<std::ptrdiff_t>(result.bytes));
    parse_received(peer);
  }
  return std::nullopt;
}

void ControlPlane::parse_received(Peer& peer) {
  std::size_t used = 0;
  const std::span all(peer.received);
  while (all.size() - used >= kControlHeaderBytes) {
    const auto header = parse_control_header(all.subspan(used, kControlHeaderBytes));
    if (!header.ok()) return close_link(peer, header.status().message());
    const std::size_t frame = kControlHeaderBytes + header->length;
    if (all.size() - used < frame) break;
    auto message = parse_control_payload(header->type, all.subspan(used + kControlHeaderBytes, header->length));
    if (!message.ok()) return close_link(peer, message.status().message());
    used += frame;
    UniqueFd fd;
    if (std::holds_alternative<RegionGrant>(*message)) {
      if (peer.fds.empty()) return close_link(peer, "it sent a memory region without its descriptor");
      fd = std::move(peer.fds.front());
      peer.fds.erase(peer.fds.begin());
    }
    events_.on_control_message(peer.rank, std::move(*message), std::move(fd));
  }
  peer.received.erase(peer.received.begin(), peer.received.begin() + static_cast<std::ptrdiff_t>(used));
}

bool ControlPlane::write_to(Peer& peer) {
  int error = 0;
  const bool all_sent = write_some(peer, &error);
  if (error != 0) close_link(peer, fmt::format("this rank could not send to it: {}", channel_error_text(error)));
  return all_sent;
}

bool ControlPlane::write_some(Peer& peer, int* error) {
  peer.retries = false;
  const std::lock_guard lock(mutex_);
  if (!peer.socket.valid()) peer.outbox.clear();
  while (!peer.outbox.empty()) {
    auto& message = peer.outbox.front();
    const int fd = message.sent == 0 ? message.attachment.fd : -1;
    const auto rest = std::span<const std::byte>(message.frame).subspan(message.sent);
    // Descriptors pass only between processes of one host, whose links are never encrypted.
    const IoResult result = peer.socket.encrypted() ? peer.socket.send(rest) : send_some(peer.socket.fd(), rest, fd);
    if (result.closed || result.error != 0) {
      peer.outbox.clear();
      // What a peer sent before its end is still to be read.
      *error = result.closed ? 0 : result.error;
      return true;
    }
    if (result.would_block) {
      peer.retries = result.short_of_memory;
      return false;
    }
    message.sent += result.bytes;
    if (message.sent == message.frame.size()) peer.outbox.pop_front();
  }
  return true;
}

void ControlPlane::close_link(Peer& peer, const std::string& how) {
  peer.socket.reset();
  events_.on_control_closed(peer.rank, how);
}

void ControlPlane::report_silent_peers(Clock::time_point now) {
  for (auto& peer : peers_) {
    const auto limit = peer.heard ? peer_timeout_ : until_first_heard_;
    if (!peer.heartbeats || !peer.socket.valid() || peer.reported_silent || now - peer.last_heard <= limit) continue;
    peer.reported_silent = true;
    events_.on_control_silent(peer.rank, now - peer.last_heard);
  }
}

}  // namespace lockstep
