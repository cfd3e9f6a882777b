#include "simulation/network.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace lockstep::simulation {
namespace {

constexpr std::size_t kSendBuffer = 1 << 20;
constexpr Time kFirstRetransmission = 200 * kMillisecond;
constexpr Time kLongestRetransmission = 3 * kSecond;
constexpr Time kUserTimeout = 15 * kSecond;
constexpr Time kKeepAlive = 14 * kSecond;
constexpr std::uint32_t kLoopback = (127U << 24) | 1;
constexpr std::uint16_t kFirstPort = 20000;
constexpr int kPorts = 96;  // few, so that the port of an ended process soon belongs to another one

}  // namespace

Link Network::link(const Host& from, const Host& to) const {
  if (from.index == to.index) return Link::open;
  if (without_power_.contains(from.index) || without_power_.contains(to.index)) return Link::drop;
  const auto found = links_.find({from.index, to.index});
  return found == links_.end() ? Link::open : found->second;
}

void Network::set_link(const Host& from, const Host& to, Link link) {
  links_[{from.index, to.index}] = link;
  if (link == Link::open) return;
  for (const auto& weak : sockets_) {
    const auto socket = weak.lock();
    if (!socket || !socket->peer_ || !socket->keep_alive || socket->broken_) continue;
    const int here = socket->host_.index, there = socket->peer_->host_.index;
    if ((here != from.index || there != to.index) && (here != to.index || there != from.index)) continue;
    const Time delay = link == Link::reject ? simulation_.random().below(5 * kSecond) : kKeepAlive;
    simulation_.scheduler()->after(delay, [socket] { socket->check_peer(); });
  }
}

void Network::power_off(const Host& host) {
  without_power_.insert(host.index);
  for (int i = 0; i < simulation_.hosts(); ++i) {
    if (i != host.index) set_link(host, simulation_.host(i), Link::drop);
  }
}

void Network::heal() {
  links_.clear();
  delays_.clear();
}

Time Network::latency(const Host& from, const Host& to) {
  Random& random = simulation_.random();
  Time latency = from.index == to.index ? random.between(5, 30) * kMicrosecond : random.between(40, 300) * kMicrosecond;
  if (random.one_in(200)) latency += random.below(30 * kMillisecond);
  const auto delay = delays_.find({from.index, to.index});
  if (delay != delays_.end()) latency += random.below(delay->second + 1);
  return latency;
}

Host* Network::find_host(const Host& from, std::uint32_t address) {
  if (address == kLoopback) return &simulation_.host(from.index);
  for (int i = 0; i < simulation_.hosts(); ++i) {
    if (simulation_.host(i).address == address) return &simulation_.host(i);
  }
  return nullptr;
}

std::uint16_t Network::free_port(const Host& host) {
  while (true) {
    const auto port = static_cast<std::uint16_t>(kFirstPort + simulation_.random().below(kPorts));
    if (!host.listeners.contains(port)) return port;
  }
}

short Listener::ready() const { return backlog.empty() ? 0 : POLLIN; }

void Listener::closed() {
  if (host.listeners.contains(port) && host.listeners[port] == this) host.listeners.erase(port);
  for (const auto& socket : std::exchange(backlog, {})) socket->closed();
}

short Socket::ready() const {
  short events = 0;
  if (!received_.empty() || end_received_ || broken_) events |= POLLIN;
  if ((connected && !closed_ && outgoing_bytes_ < kSendBuffer) || broken_) events |= POLLOUT;
  if (broken_) events |= POLLERR | POLLHUP;
  return events;
}

int Socket::take_error() { return std::exchange(error_, 0); }

int Socket::connect(std::uint32_t address, std::uint16_t port) {
  remote_address = target_ = address;
  remote_port = target_port_ = port;
  local_address = address == kLoopback ? kLoopback : host_.address;
  if (local_port == 0) local_port = static_cast<std::uint16_t>(50000 + network_.simulation().random().below(10000));
  connecting_ = true;
  attempt(kSecond);
  errno = EINPROGRESS;
  return -1;
}

// Sends SYN, and again after `pause` if nothing comes back.
void Socket::attempt(Time pause) {
  const auto self = shared_from_this();
  Scheduler& scheduler = *network_.simulation().scheduler();
  Host* const to = network_.find_host(host_, target_);
  const auto again = [self, pause, &scheduler] {
    scheduler.after(pause, [self, pause] {
      if (self->connecting_ && !self->closed_) self->attempt(std::min(2 * pause, 8 * kSecond));
    });
  };
  if (to == nullptr || network_.link(host_, *to) == Link::drop) return again();
  scheduler.after(network_.latency(host_, *to), [self, to, again, &scheduler] {
    if (!self->connecting_ || self->closed_) return;
    Network& network = self->network_;
    const Link there = network.link(self->host_, *to), back = network.link(*to, self->host_);
    if (there == Link::drop || back == Link::drop) return again();
    const auto found = to->listeners.find(self->target_port_);
    auto* const listener = found == to->listeners.end() ? nullptr : static_cast<Listener*>(found->second);
    const bool refused = there == Link::reject || back == Link::reject || listener == nullptr;
    std::shared_ptr<Socket> accepted;
    if (!refused) {
      accepted = std::make_shared<Socket>(network, *to);
      accepted->local_address = self->target_;
      accepted->local_port = self->target_port_;
      accepted->remote_address = self->local_address;
      accepted->remote_port = self->local_port;
      accepted->connected = true;
      accepted->peer_ = self;
      network.add(accepted);
      listener->backlog.push_back(accepted);
      listener->changed();
    }
    scheduler.after(network.latency(*to, self->host_), [self, accepted] {
      if (!self->connecting_) return;
      self->connecting_ = false;
      if (!accepted) {
        self->broken_ = true;
        self->error_ = ECONNREFUSED;
      } else if (self->closed_) {
        accepted->reset(ECONNRESET);
      } else {
        self->connected = true;
        self->peer_ = accepted;
        if (!self->outgoing_.empty()) self->pump();
        if (!accepted->outgoing_.empty()) accepted->pump();
      }
      self->changed();
    });
  });
}

ssize_t Socket::send(const void* data, std::size_t bytes) {
  if (broken_) {
    errno = error_ != 0 ? std::exchange(error_, 0) : EPIPE;
    return -1;
  }
  if (!connected || outgoing_bytes_ >= kSendBuffer) {
    errno = connected ? EAGAIN : ENOTCONN;
    return -1;
  }
  bytes = std::min(bytes, kSendBuffer - outgoing_bytes_);
  transmit({.data = std::string(static_cast<const char*>(data), bytes)});
  return static_cast<ssize_t>(bytes);
}

ssize_t Socket::receive(void* data, std::size_t bytes) {
  if (!received_.empty()) {
    bytes = std::min(bytes, received_.size());
    std::memcpy(data, received_.data(), bytes);
    received_.erase(0, bytes);
    return static_cast<ssize_t>(bytes);
  }
  if (broken_ && error_ != 0) {
    errno = std::exchange(error_, 0);
    return -1;
  }
  if (end_received_ || broken_) return 0;
  errno = connected ? EAGAIN : ENOTCONN;
  return -1;
}

void Socket::transmit(Segment segment) {
  outgoing_bytes_ += segment.data.size();
  outgoing_.push_back(std::move(segment));
  if (pumping_ || !peer_) return;
  pumping_ = true;
  const auto self = shared_from_this();
  network_.simulation().scheduler()->after(network_.latency(host_, peer_->host_), [self] { self->pump(); });
}

// Delivers what was sent, in order. Runs on while its process stops, and after the process has ended.
void Socket::pump() {
  pumping_ = true;
  const auto self = shared_from_this();
  Scheduler& scheduler = *network_.simulation().scheduler();
  while (!outgoing_.empty() && !broken_ && peer_) {
    const Time now = scheduler.now();
    const Link there = network_.link(host_, peer_->host_), back = network_.link(peer_->host_, host_);
    if (there == Link::reject) return reset(ECONNRESET);
    if (there == Link::drop) {
      if (pause_ == 0) first_sent_ = now, pause_ = kFirstRetransmission;
      if (now - first_sent_ > kUserTimeout) return reset(ETIMEDOUT);
      scheduler.after(pause_, [self] { self->pump(); });
      pause_ = std::min(2 * pause_, kLongestRetransmission);
      return;
    }
    pause_ = 0;
    Segment segment = std::move(outgoing_.front());
    outgoing_.pop_front();
    outgoing_bytes_ -= segment.data.size();
    changed();
    if (peer_->broken_ || peer_->closed_) {  // its kernel answers with RST, if that arrives
      if (back == Link::open && !segment.data.empty()) {
        scheduler.after(network_.latency(peer_->host_, host_), [self] { self->reset(ECONNRESET); });
      }
      continue;
    }
    peer_->received_ += segment.data;
    peer_->end_received_ = peer_->end_received_ || segment.end;
    peer_->changed();
    if (back == Link::reject) peer_->reset(ECONNRESET);  // its acknowledgement was answered with RST
    if (back == Link::drop) acknowledge(now, kFirstRetransmission);
  }
  pumping_ = false;
}

// The data arrived, but the acknowledgement did not: it is tried again until the connection times out.
void Socket::acknowledge(Time first_sent, Time pause) {
  const auto self = shared_from_this();
  network_.simulation().scheduler()->after(pause, [self, first_sent, pause] {
    if (self->broken_ || !self->peer_) return;
    Network& network = self->network_;
    if (network.link(self->peer_->host_, self->host_) == Link::open) return;
    if (network.simulation().now() - first_sent > kUserTimeout) return self->reset(ETIMEDOUT);
    self->acknowledge(first_sent, std::min(2 * pause, kLongestRetransmission));
  });
}

// Keep-alive.
void Socket::check_peer() {
  if (!peer_ || broken_ || closed_) return;
  const Link there = network_.link(host_, peer_->host_), back = network_.link(peer_->host_, host_);
  if (there == Link::open && back == Link::open) return;
  reset(there == Link::reject || back == Link::reject ? ECONNRESET : ETIMEDOUT);
}

void Socket::reset(int error) {
  if (broken_) return;
  broken_ = true;
  connecting_ = false;
  error_ = error;
  outgoing_.clear();
  outgoing_bytes_ = 0;
  if (error == ECONNRESET) received_.clear();
  changed();
}

void Socket::closed() {
  if (closed_) return;
  closed_ = true;
  const auto self = shared_from_this();
  if (broken_ || !peer_) return;
  const auto peer = peer_;
  if (!received_.empty()) {  // unread data: RST instead of FIN
    if (network_.link(host_, peer->host_) != Link::open) return;
    network_.simulation().scheduler()->after(network_.latency(host_, peer->host_), [peer] { peer->reset(ECONNRESET); });
    outgoing_.clear();
    return;
  }
  transmit({.data = "", .end = true});
}

}  // namespace lockstep::simulation
