#include "transport/stream/stream_transport.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <numeric>
#include <utility>

#include "base/net/socket.h"
#include "transport/attempt_time.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kCheckInterval{100};
// How long to wait for the control plane to report why a connection closed, before reporting only that it did.
constexpr std::chrono::milliseconds kReasonGrace{200};
// Between attempts to connect, the group's state is checked.
constexpr std::chrono::milliseconds kConnectAttempt{1000};
constexpr std::chrono::milliseconds kLongestAttempt{2000};
constexpr std::size_t kPageBytes = 4096;
// With more bytes in flight, sleeping lets them accumulate and costs almost nothing.
constexpr std::size_t kSpinBytes = 64 << 10;
// The peer that we wait for may need our processor to send, which takes some ten microseconds. If sched_yield returns
// later than this, a thread that does not wait for other ranks uses the processor. Then sleeping is better, because
// the kernel prefers a thread that wakes up; for kSleepAtOnce no wait spins.
constexpr std::chrono::microseconds kTurn{500};
constexpr std::chrono::milliseconds kSleepAtOnce{50};
// This many bytes stay in the cache even if one call sends them all.
constexpr std::size_t kSmallBurst = 256 << 10;

// For speed only: if it fails, the kernel's default size is used.
void limit_send_buffer(int fd, std::size_t bytes) {
  const int size = static_cast<int>(bytes);
  if (size > 0) ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

Status end_of_connection(int rank, const Channel& channel, const StreamFlow::Moved& outcome) {
  if (outcome.outcome == StreamFlow::Outcome::closed) {
    return Status(StatusCode::peer_lost, fmt::format("rank {} closed its data connection", rank));
  }
  return Status(StatusCode::peer_lost, fmt::format("the data connection to rank {} at {} failed: {}", rank,
                                                   peer_text(channel.fd()), channel_error_text(outcome.error)));
}

}  // namespace

void StreamTransport::AlignedDelete::operator()(std::byte* memory) const { std::free(memory); }

StreamTransport::StreamTransport(int rank, std::vector<std::vector<Channel>> connections, const StreamOptions& options)
    : StreamTransport(rank, static_cast<int>(connections.size()), nullptr, options) {
  for (int peer = 0; peer < peers_.size(); ++peer) {
    auto& given = connections[static_cast<std::size_t>(peer)];
    peers_[peer].connections.resize(given.size());
    for (std::size_t i = 0; i < given.size(); ++i) use(peer, static_cast<std::uint32_t>(i), std::move(given[i]));
  }
}

StreamTransport::StreamTransport(int rank, int size, std::shared_ptr<LinkSource> links, const StreamOptions& options)
    : rank_(rank),
      options_(options),
      links_(std::move(links)),
      arrival_fd_(links_ ? ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1) {
  all_ranks_.resize(static_cast<std::size_t>(size));
  std::iota(all_ranks_.begin(), all_ranks_.end(), 0);
  for (int peer = 0; peer < size; ++peer) {
    peers_.push_back({StreamFlow(StreamDirection::send, options_.stripe_bytes),
                      StreamFlow(StreamDirection::receive, options_.stripe_bytes)});
    if (links_ && peer != rank) peers_[peer].connections.resize(static_cast<std::size_t>(links_->data_links(peer)));
  }
  pointers_.resize(all_ranks_.size());
  active_.reserve(all_ranks_.size());
  waiting_for_.reserve(all_ranks_.size());
  if (!links_) return;
  links_->set_listener(kDataRole, [fd = arrival_fd_.get()] {
    const std::uint64_t one = 1;
    // Can fail only if the counter is full, and then the fd is readable anyway.
    [[maybe_unused]] const auto written = ::write(fd, &one, sizeof(one));
  });
}

StreamTransport::~StreamTransport() {
  if (links_) links_->set_listener(kDataRole, nullptr);
}

void StreamTransport::use(int rank, std::uint32_t index, Channel channel) {
  Peer& each = peers_[rank];
  if (index >= each.connections.size()) return;
  limit_send_buffer(channel.fd(), options_.send_buffer_bytes);
  each.connections[index] = std::move(channel);
  if (!std::all_of(each.connections.begin(), each.connections.end(), [](const auto& one) { return one.valid(); })) {
    return;
  }
  each.outgoing.connect(each.connections);
  each.incoming.connect(each.connections);
}

Status StreamTransport::connect_peers(WaitScope& scope) {
  std::uint64_t arrivals = 0;
  [[maybe_unused]] const auto drained = ::read(arrival_fd_.get(), &arrivals, sizeof(arrivals));
  for (auto& [name, link] : links_->take_all(kDataRole)) use(name.peer, name.index, std::move(link));
  for (const int rank : unconnected_) {
    if (rank < rank_ && !peers_[rank].outgoing.connected()) LOCKSTEP_RETURN_IF_ERROR(connect_to_lower(scope, rank));
  }
  std::erase_if(unconnected_, [this](int rank) { return peers_[rank].outgoing.connected(); });
  return {};
}

Status StreamTransport::connect_to_lower(WaitScope& scope, int rank) {
  const auto count = static_cast<std::uint32_t>(peers_[rank].connections.size());
  AttemptTime time(kConnectAttempt, kLongestAttempt);
  for (std::uint32_t index = 0; index < count;) {
    auto link = links_->connect({rank, kDataRole, index}, scope.deadline().earlier(Deadline::after(time.next())));
    if (link.ok()) {
      use(rank, index++, *std::move(link));
      time = AttemptTime(kConnectAttempt, kLongestAttempt);
      continue;
    }
    if (link.status().code() != StatusCode::timed_out) return lost(scope, rank, link.status());
    const Status state = scope.check(std::span(&rank, 1));
    if (state.code() == StatusCode::timed_out) {
      return Status(state.code(),
                    fmt::format("{}; there is no connection yet: {}", state.message(), link.status().message()));
    }
    LOCKSTEP_RETURN_IF_ERROR(state);
  }
  return {};
}

void StreamTransport::begin(const StreamHeaderBytes& header, StreamHeaderCheck check) {
  for (const int rank : active_) {
    Peer& each = peers_[rank];
    each.outgoing.close();
    each.incoming.close();
    each.active = false;
  }
  active_.clear();
  unconnected_.clear();
  header_ = header;
  header_check_ = check;
  next_check_ = Deadline::Clock::now() + kCheckInterval;
}

StreamTransport::Peer& StreamTransport::activate(int rank) {
  Peer& each = peers_[rank];
  if (std::exchange(each.active, true)) return each;
  active_.push_back(rank);
  if (!each.outgoing.connected()) unconnected_.push_back(rank);
  return each;
}

void StreamTransport::open_send(int rank) { activate(rank).outgoing.open(); }
void StreamTransport::open_receive(int rank) { activate(rank).incoming.open(); }

void StreamTransport::send(int rank, const std::byte* data, std::size_t size) {
  // Sending only reads; the queue serves both directions.
  peers_[rank].outgoing.push(const_cast<std::byte*>(data), size);
}
void StreamTransport::receive(int rank, std::byte* data, std::size_t size) { peers_[rank].incoming.push(data, size); }

bool StreamTransport::idle() const {
  return std::all_of(active_.begin(), active_.end(), [this](int rank) { return idle(rank); });
}

Status StreamTransport::advance(WaitScope& scope) {
  if (scope.stopped()) return check(scope);
  if (!unconnected_.empty()) LOCKSTEP_RETURN_IF_ERROR(connect_peers(scope));
  bool moved = false;
  LOCKSTEP_RETURN_IF_ERROR(move_all(scope, false, moved));
  if (moved) {
    // A peer that sends slowly must not prevent the check of the deadline.
    return Deadline::Clock::now() < next_check_ ? Status() : check(scope);
  }
  if (idle()) return Status(StatusCode::internal, "an algorithm waits for streams on which nothing is queued");
  LOCKSTEP_RETURN_IF_ERROR(spin(scope, moved));
  return moved ? Status() : sleep(scope);
}

Status StreamTransport::finish(WaitScope& scope) {
  while (!idle()) LOCKSTEP_RETURN_IF_ERROR(advance(scope));
  return {};
}

std::span<std::byte> StreamTransport::scratch(std::size_t size) {
  if (size > scratch_size_) {
    const std::size_t rounded = (size + kPageBytes - 1) / kPageBytes * kPageBytes;
    scratch_.reset();
    scratch_.reset(static_cast<std::byte*>(std::aligned_alloc(kPageBytes, rounded)));
    scratch_size_ = scratch_ ? rounded : 0;
    if (!scratch_) throw std::bad_alloc();
  }
  return {scratch_.get(), size};
}

// Sends first: if a header from a peer is an error here, the peer has our header by then, and reports the same error.
Status StreamTransport::move_all(WaitScope& scope, bool retry_receives, bool& moved) {
  for (const int rank : active_) {
    StreamFlow& flow = peers_[rank].outgoing;
    LOCKSTEP_RETURN_IF_ERROR(move_flow(scope, rank, flow, send_limit(flow), false, moved));
  }
  for (const int rank : active_) {
    StreamFlow& flow = peers_[rank].incoming;
    LOCKSTEP_RETURN_IF_ERROR(move_flow(scope, rank, flow, options_.call_bytes, retry_receives, moved));
  }
  return {};
}

std::size_t StreamTransport::send_limit(const StreamFlow& flow) const {
  const bool one_burst = flow.pushed() > kSmallBurst && flow.pushed() < 4 * options_.call_bytes;
  return one_burst ? options_.burst_bytes : options_.call_bytes;
}

Status StreamTransport::move_flow(WaitScope& scope, int rank, StreamFlow& flow, std::size_t limit, bool retry_blocked,
                                  bool& moved) {
  const auto connections = flow.connections();
  for (std::size_t i = 0; i < connections.size(); ++i) {
    if (!flow.wants(i) || (connections[i].blocked && !retry_blocked)) continue;
    const auto outcome = flow.move(i, header_, limit);
    switch (outcome.outcome) {
      case StreamFlow::Outcome::nothing: break;
      case StreamFlow::Outcome::moved: moved = true; break;
      case StreamFlow::Outcome::closed:
      case StreamFlow::Outcome::failed:
        return lost(scope, rank, end_of_connection(rank, *connections[i].channel, outcome));
    }
    if (outcome.header_arrived) LOCKSTEP_RETURN_IF_ERROR(check_header(rank, connections[i]));
  }
  return {};
}

Status StreamTransport::check_header(int rank, const StreamConnection& connection) const {
  if (connection.header == header_) return {};
  return header_check_(rank_, header_, rank, connection.header);
}

Status StreamTransport::lost(WaitScope& scope, int rank, const Status& how) {
  const auto grace = Deadline::after(kReasonGrace);
  do {
    LOCKSTEP_RETURN_IF_ERROR(scope.check(std::span(&rank, 1)));
    pollfd stop{.fd = scope.stop_fd(), .events = POLLIN, .revents = 0};
    ::poll(&stop, 1, grace.poll_timeout_ms(10));
  } while (!grace.expired());
  return Status(StatusCode::peer_lost, how.message());
}

bool StreamTransport::few_bytes_missing() const {
  std::size_t missing = 0;
  for (const int rank : active_) {
    const StreamFlow& flow = peer(rank).incoming;
    if (flow.is_open()) missing += flow.pushed() - flow.completed();
  }
  return missing <= kSpinBytes;
}

Status StreamTransport::spin(WaitScope& scope, bool& moved) {
  auto now = Deadline::Clock::now();
  if (now < spin_again_ || !few_bytes_missing()) return {};
  for (const auto until = now + options_.spin; now < until;) {
    if (scope.stopped()) return check(scope);
    LOCKSTEP_RETURN_IF_ERROR(move_all(scope, true, moved));
    if (moved) return {};
    ::sched_yield();
    const auto before = std::exchange(now, Deadline::Clock::now());
    if (now - before > kTurn) spin_again_ = now + kSleepAtOnce;
  }
  return {};
}

Status StreamTransport::sleep(WaitScope& scope) {
  poll_fds_.clear();
  poll_entries_.clear();
  for (const int rank : active_) {
    Peer& each = peers_[rank];
    for (const auto& [flow, events] : {std::pair(&each.incoming, POLLIN), std::pair(&each.outgoing, POLLOUT)}) {
      const auto connections = flow->connections();
      for (std::size_t i = 0; i < connections.size(); ++i) {
        if (!flow->wants(i)) continue;
        poll_fds_.push_back({.fd = connections[i].channel->fd(), .events = static_cast<short>(events), .revents = 0});
        poll_entries_.push_back({flow, i});
      }
    }
  }
  poll_fds_.push_back({.fd = scope.stop_fd(), .events = POLLIN, .revents = 0});
  if (!unconnected_.empty()) poll_fds_.push_back({.fd = arrival_fd_.get(), .events = POLLIN, .revents = 0});

  const auto until = scope.deadline().earlier(Deadline::at(next_check_));
  const int ready = ::poll(poll_fds_.data(), poll_fds_.size(), until.poll_timeout_ms(100));
  for (std::size_t i = 0; ready > 0 && i < poll_entries_.size(); ++i) {
    // Errors and hang-ups count as ready: the next call on the socket reports them.
    if (poll_fds_[i].revents != 0) poll_entries_[i].flow->connections()[poll_entries_[i].connection].blocked = false;
  }
  if (ready > 0 && !scope.stopped() && Deadline::Clock::now() < next_check_) return {};
  return check(scope);
}

Status StreamTransport::check(WaitScope& scope) {
  waiting_for_.clear();
  for (const int rank : active_) {
    if (!idle(rank)) waiting_for_.push_back(rank);
  }
  next_check_ = Deadline::Clock::now() + kCheckInterval;
  return scope.check(waiting_for_);
}

}  // namespace lockstep
