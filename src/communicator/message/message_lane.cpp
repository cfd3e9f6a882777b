#include "communicator/message/message_lane.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/net/socket.h"
#include "base/seconds.h"
#include "base/start_thread.h"

namespace lockstep {
namespace {

using Clock = Deadline::Clock;

// When a message connection ends, the control connection may be about to report the real reason.
constexpr std::chrono::milliseconds kReasonGrace{300};
// How long the link of a peer that has left may take to be accepted here.
constexpr std::chrono::milliseconds kArrivalGrace{700};
constexpr std::chrono::milliseconds kLookForEnded{100};

std::string name_of(const char* verb, std::size_t count, DType dtype, int rank, int tag) {
  return fmt::format("{} rank {} (count {}, {}, tag {})", verb, rank, count, to_string(dtype), tag);
}

constexpr const char* kClosed = "closed its message connection: it has left the group, or its process has ended";

std::string how_ended(const IoResult& result) {
  if (result.closed || result.error == 0) return kClosed;
  return fmt::format("was lost: its message connection failed: {}", channel_error_text(result.error));
}

std::span<std::byte> bytes_of(const Buffer& data) { return {static_cast<std::byte*>(data.data), data.bytes()}; }

}  // namespace

MessageLane::MessageLane(std::shared_ptr<GroupCore> core)
    : core_(std::move(core)),
      wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      connectors_(core_->topology().size(),
                  [this](int rank, std::chrono::milliseconds time) { connect_to(rank, time); }) {
  peers_ = RankVector<Peer>(core_->topology().size());
  if (core_->links() != nullptr) core_->links()->set_listener(kMessagesRole, [this] { wake(); });
}

void MessageLane::wake() {
  const std::uint64_t one = 1;
  if (::write(wake_fd_.get(), &one, sizeof(one)) < 0) {
    // The counter is full: the thread is being woken already.
  }
}

Status MessageLane::start() {
  if (!thread_.joinable()) {
    auto thread = start_thread("sends and receives messages", [this] { serve(); });
    if (!thread.ok()) return thread.status();
    thread_ = *std::move(thread);
  }
  wake();
  return {};
}

bool MessageLane::refuse(const std::shared_ptr<detail::WorkState>& work, const std::string& name, bool needs_thread) {
  if (closing_) {
    settle(work, Status(StatusCode::closed, name + ": this group has been destroyed"));
  } else if (core_->failure().failed()) {
    settle(work, core_->failure_of(name, {}));
  } else if (const Status started = needs_thread ? start() : Status(); !started.ok()) {
    core_->fail(started.with_context(core_->describe_rank(core_->topology().rank)));  // a peer waits for the other end
    settle(work, started.with_context(name));
  } else {
    return false;
  }
  return true;
}

Work MessageLane::send(ConstBuffer data, int destination, int tag, std::chrono::milliseconds timeout) {
  auto work = std::make_shared<detail::WorkState>();
  const std::string name = name_of("send to", data.count, data.dtype, destination, tag);
  const MessageHeader header{.tag = tag, .dtype = data.dtype, .bytes = data.bytes()};
  const std::span payload(static_cast<const std::byte*>(data.data), data.bytes());

  std::unique_lock lock(mutex_);
  if (!refuse(work, name, destination != core_->topology().rank)) {
    auto& peer = peers_[destination];
    if (destination == core_->topology().rank) {
      Unexpected message{header, Bytes(payload.begin(), payload.end())};
      if (auto posted = take_posted(destination, tag)) {
        deliver(destination, *posted, message);
      } else {
        peer.unexpected.push_back(std::move(message));
      }
      settle(work, Status());
    } else {
      peer.outgoing.push_back(
          {format_message_header(header), 0, payload, Deadline::after(timeout), name, Clock::now(), work});
    }
  }
  complete_settled(lock);
  return Work(work);
}

Work MessageLane::recv(Buffer data, int source, int tag, std::chrono::milliseconds timeout) {
  auto work = std::make_shared<detail::WorkState>();
  Posted posted{data,         tag, Deadline::after(timeout), name_of("recv from", data.count, data.dtype, source, tag),
                Clock::now(), work};
  std::unique_lock lock(mutex_);
  // The thread receives it, or what there is room for once it is taken.
  if (!refuse(work, posted.name, source != core_->topology().rank)) {
    posted.order = ++posted_;
    if (!deliver_kept(source, posted)) peers_[source].posted.push_back(std::move(posted));
  }
  complete_settled(lock);
  return Work(work);
}

Work MessageLane::recv_any(Buffer data, int* source, int tag, std::chrono::milliseconds timeout) {
  auto work = std::make_shared<detail::WorkState>();
  const std::string name =
      fmt::format("recv from any rank (count {}, {}, tag {})", data.count, to_string(data.dtype), tag);
  Posted posted{data, tag, Deadline::after(timeout), name, Clock::now(), work, source};
  std::unique_lock lock(mutex_);
  if (!refuse(work, name, peers_.size() > 1)) {
    posted.order = ++posted_;
    bool delivered = false;
    for (int rank = 0; rank < peers_.size() && !delivered; ++rank) delivered = deliver_kept(rank, posted);
    if (!delivered) from_any_.push_back(std::move(posted));
  }
  complete_settled(lock);
  return Work(work);
}

bool MessageLane::deliver_kept(int source, Posted& posted) {
  auto& peer = peers_[source];
  const auto kept = std::find_if(peer.unexpected.begin(), peer.unexpected.end(),
                                 [&](const Unexpected& message) { return message.header.tag == posted.tag; });
  if (kept == peer.unexpected.end()) return false;
  const Unexpected message = std::move(*kept);
  peer.unexpected.erase(kept);
  peer.unexpected_bytes -= std::min(peer.unexpected_bytes, message.payload.size());
  if (posted.source != nullptr) *posted.source = source;
  deliver(source, posted, message);
  return true;
}

// The receive that was issued first.
std::optional<MessageLane::Posted> MessageLane::take_posted(int rank, int tag) {
  const auto has_tag = [&](const Posted& posted) { return posted.tag == tag; };
  auto& of_peer = peers_[rank].posted;
  const auto match = std::find_if(of_peer.begin(), of_peer.end(), has_tag);
  const auto any = std::find_if(from_any_.begin(), from_any_.end(), has_tag);
  std::optional<Posted> taken;
  if (any != from_any_.end() && (match == of_peer.end() || any->order < match->order)) {
    taken = std::move(*any);
    from_any_.erase(any);
    *taken->source = rank;
  } else if (match != of_peer.end()) {
    taken = std::move(*match);
    of_peer.erase(match);
  }
  return taken;
}

Status MessageLane::check_fit(int source, const MessageHeader& header, const Posted& posted) const {
  if (header.bytes == posted.data.bytes() && header.dtype == posted.data.dtype) return Status();
  return Status(StatusCode::mismatch,
                fmt::format("rank {} sent {} elements of {} to rank {} with tag {}, which receives {} of {}", source,
                            header.bytes / element_size(header.dtype), to_string(header.dtype), core_->topology().rank,
                            header.tag, posted.data.count, to_string(posted.data.dtype)));
}

void MessageLane::deliver(int source, Posted& posted, const Unexpected& message) {
  if (Status fit = check_fit(source, message.header, posted); !fit.ok()) {
    core_->fail(fit);
    settle(posted.work, core_->failure_of(posted.name, Clock::now() - posted.started));
    return;
  }
  if (!message.payload.empty()) std::memcpy(posted.data.data, message.payload.data(), message.payload.size());
  settle(posted.work, Status());
}

void MessageLane::settle(std::shared_ptr<detail::WorkState> work, Status outcome) {
  settled_.push_back({std::move(work), std::move(outcome)});
}

void MessageLane::complete_settled(std::unique_lock<std::mutex>& lock) {
  while (!settled_.empty()) {
    const auto settled = std::exchange(settled_, {});
    lock.unlock();
    for (const auto& completion : settled) completion.work->complete(completion.outcome);
    lock.lock();
  }
}

void MessageLane::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    connect_links();
    for (int rank = 0; rank < peers_.size(); ++rank) {
      write_to(rank);
      read_from(rank);
    }
    find_ended(Clock::now());
    expire(Clock::now());
    if (core_->failure().failed()) fail_all();
    complete_settled(lock);
    if (closing_ && all_sent()) return;
    poll_once(lock);
  }
}

void MessageLane::connect_links() {
  for (auto& [name, link] : core_->links()->take_all(kMessagesRole)) {
    auto& peer = peers_[name.peer];
    if (peer.from.valid()) continue;  // no rank connects twice
    peer.from = std::move(link);
    peer.from_ended.reset();
  }
  const auto not_started = connectors_.start([this](int rank) {
    const auto& peer = peers_[rank];
    return !peer.outgoing.empty() && !peer.to.valid() && !peer.to_ended;
  });
  if (not_started) peers_[not_started->rank].not_connected = not_started->why;
}

// One attempt.
void MessageLane::connect_to(int rank, std::chrono::milliseconds time) {
  auto link = core_->links()->connect({rank, kMessagesRole, 0}, Deadline::after(time));
  {
    const std::lock_guard lock(mutex_);
    auto& peer = peers_[rank];
    const bool lost = !link.ok() && link.status().code() != StatusCode::timed_out;
    peer.not_connected = link.status().message();
    if (lost) peer.to_ended = {Clock::now(), "cannot be reached: " + link.status().message()};
    if (link.ok()) peer.to = *std::move(link);
    connectors_.ended(rank);
  }
  wake();
}

void MessageLane::find_ended(Clock::time_point now) {
  for (int rank = 0; rank < peers_.size(); ++rank) {
    auto& peer = peers_[rank];
    if (rank == core_->topology().rank || peer.from.valid() || peer.from_ended) continue;
    if (!peer.receives() && from_any_.empty()) continue;
    // What it sent before may still be on its way: its link was accepted, but not yet taken.
    if (core_->progress().has_left(rank)) peer.from_ended = {now + kArrivalGrace, kClosed};
  }
}

bool MessageLane::wants_to_read(const Peer& peer) const {
  if (!peer.from.valid() || peer.from_ended) return false;
  const auto& incoming = peer.incoming;
  if (incoming.placed || incoming.raw_received < kMessageHeaderBytes) return true;
  // A message that was too large to keep waits for its receive.
  const auto has_tag = [&](const Posted& posted) { return posted.tag == incoming.header.tag; };
  return peer.unexpected_bytes + incoming.header.bytes <= kMaxUnexpectedBytes ||
         std::any_of(peer.posted.begin(), peer.posted.end(), has_tag) ||
         std::any_of(from_any_.begin(), from_any_.end(), has_tag);
}

bool MessageLane::all_sent() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.outgoing.empty(); });
}

bool MessageLane::all_ended(Clock::time_point now) const {
  for (int rank = 0; rank < peers_.size(); ++rank) {
    const auto& ended = peers_[rank].from_ended;
    if (rank != core_->topology().rank && (!ended || now < ended->when + kReasonGrace)) return false;
  }
  return peers_.size() > 1;
}

void MessageLane::poll_once(std::unique_lock<std::mutex>& lock) {
  std::vector<pollfd> entries{{wake_fd_.get(), POLLIN, 0}};
  std::chrono::milliseconds longest{1000};
  for (const auto& peer : peers_) {
    if (wants_to_read(peer)) entries.push_back({peer.from.fd(), POLLIN, 0});
    if (peer.to.valid() && !peer.to_ended && !peer.outgoing.empty()) entries.push_back({peer.to.fd(), POLLOUT, 0});
    // No link shows when this peer leaves.
    if (peer.receives() && !peer.from.valid()) longest = kLookForEnded;
  }
  if (!from_any_.empty()) longest = kLookForEnded;
  const int timeout = next_deadline().poll_timeout_ms(static_cast<int>(longest.count()));
  lock.unlock();
  const int ready = ::poll(entries.data(), entries.size(), timeout);
  lock.lock();
  std::uint64_t drained = 0;
  if (ready > 0 && entries[0].revents != 0 && ::read(wake_fd_.get(), &drained, sizeof(drained)) < 0) {
    // Drained together with an earlier wake.
  }
}

void MessageLane::write_to(int rank) {
  auto& peer = peers_[rank];
  while (!peer.outgoing.empty() && peer.to.valid() && !peer.to_ended) {
    auto& message = peer.outgoing.front();
    const bool in_header = message.header_sent < kMessageHeaderBytes;
    const std::span<const std::byte> next =
        in_header ? std::span<const std::byte>(message.header).subspan(message.header_sent) : message.rest;
    if (!next.empty()) {
      const IoResult result = peer.to.send(next);
      if (result.would_block) return;
      if (result.closed || result.error != 0) {
        peer.to_ended = {Clock::now(), how_ended(result)};
        return;
      }
      if (in_header) {
        message.header_sent += result.bytes;
        continue;
      }
      message.rest = message.rest.subspan(result.bytes);
    }
    if (!message.rest.empty()) continue;
    settle(std::move(message.work), Status());
    peer.outgoing.pop_front();
  }
}

void MessageLane::read_from(int rank) {
  auto& peer = peers_[rank];
  bool blocked = false;
  while (!blocked && wants_to_read(peer)) {
    Status status;
    if (peer.incoming.raw_received < kMessageHeaderBytes) {
      status = receive_header(rank, blocked);
    } else if (!peer.incoming.placed) {
      status = place_incoming(rank);
    } else {
      status = receive_payload(rank, blocked);
    }
    if (!status.ok()) {
      core_->fail(status);
      return;
    }
  }
}

Status MessageLane::receive_header(int rank, bool& blocked) {
  auto& peer = peers_[rank];
  auto& incoming = peer.incoming;
  const IoResult result = peer.from.receive(std::span<std::byte>(incoming.raw).subspan(incoming.raw_received));
  if (result.would_block) {
    blocked = true;
  } else if (result.closed || result.error != 0) {
    peer.from_ended = {Clock::now(), how_ended(result)};
  } else {
    incoming.raw_received += result.bytes;
    if (incoming.raw_received < kMessageHeaderBytes) return Status();
    auto header = parse_message_header(incoming.raw);
    if (!header.ok()) return header.status().with_context(core_->describe_rank(rank));
    incoming.header = *header;
  }
  return Status();
}

Status MessageLane::place_incoming(int rank) {
  auto& peer = peers_[rank];
  auto& incoming = peer.incoming;
  incoming.placed = true;
  if (auto posted = take_posted(rank, incoming.header.tag)) {
    incoming.target = std::move(posted);
    LOCKSTEP_RETURN_IF_ERROR(check_fit(rank, incoming.header, *incoming.target));
  } else {
    incoming.buffer.resize(incoming.header.bytes);
    peer.unexpected_bytes += incoming.header.bytes;
  }
  if (incoming.header.bytes == 0) finish_incoming(rank);
  return Status();
}

Status MessageLane::receive_payload(int rank, bool& blocked) {
  auto& peer = peers_[rank];
  auto& incoming = peer.incoming;
  const std::span<std::byte> whole = incoming.target ? bytes_of(incoming.target->data) : std::span(incoming.buffer);
  const IoResult result = peer.from.receive(whole.subspan(incoming.received));
  if (result.would_block) {
    blocked = true;
  } else if (result.closed || result.error != 0) {
    peer.from_ended = {Clock::now(), how_ended(result)};
  } else {
    incoming.received += result.bytes;
    if (incoming.received == whole.size()) finish_incoming(rank);
  }
  return Status();
}

void MessageLane::finish_incoming(int rank) {
  auto& peer = peers_[rank];
  Incoming incoming = std::exchange(peer.incoming, Incoming{});
  if (incoming.target) return settle(incoming.target->work, Status());
  // A receive may have been posted while the message arrived.
  Unexpected message{incoming.header, std::move(incoming.buffer)};
  if (auto posted = take_posted(rank, message.header.tag)) {
    peer.unexpected_bytes -= message.payload.size();
    deliver(rank, *posted, message);
  } else {
    peer.unexpected.push_back(std::move(message));
  }
}

Deadline MessageLane::next_deadline() const {
  Deadline next = Deadline::after(std::chrono::hours(1));
  if (connectors_.again() > Clock::now()) next = next.earlier(Deadline::at(connectors_.again()));
  for (const auto& posted : from_any_) next = next.earlier(posted.deadline);
  for (const auto& peer : peers_) {
    for (const auto& message : peer.outgoing) next = next.earlier(message.deadline);
    for (const auto& posted : peer.posted) next = next.earlier(posted.deadline);
    if (peer.incoming.target) next = next.earlier(peer.incoming.target->deadline);
    if (const End* ended = peer.ended()) next = next.earlier(Deadline::at(ended->when + kReasonGrace));
  }
  return next;
}

void MessageLane::expire(Clock::time_point now) {
  const auto late = [&](const std::string& name, Deadline deadline, Clock::time_point started, int rank) {
    if (deadline.when() > now) return;
    const std::string& reason = peers_[rank].not_connected;
    core_->fail(Status(StatusCode::timed_out,
                       fmt::format("{} on rank {} reached its deadline after {:.1f} s: {} did not complete its side{}",
                                   name, core_->topology().rank, seconds(now - started), core_->describe_rank(rank),
                                   reason.empty() ? "" : "; there is no connection yet: " + reason)));
  };
  for (const auto& posted : from_any_) {
    if (posted.deadline.when() > now && !all_ended(now)) continue;
    core_->fail(Status(all_ended(now) ? StatusCode::peer_lost : StatusCode::timed_out,
                       fmt::format("{} on rank {} ended after {:.1f} s: {}", posted.name, core_->topology().rank,
                                   seconds(now - posted.started),
                                   all_ended(now) ? "all other ranks have left the group"
                                                  : "no rank sent such a message before the deadline")));
  }
  for (int rank = 0; rank < peers_.size(); ++rank) {
    const auto& peer = peers_[rank];
    for (const auto& message : peer.outgoing) late(message.name, message.deadline, message.started, rank);
    for (const auto& posted : peer.posted) late(posted.name, posted.deadline, posted.started, rank);
    if (const auto& target = peer.incoming.target) late(target->name, target->deadline, target->started, rank);

    // The end of a connection matters only to operations that wait for this peer.
    if (const End* ended = peer.ended(); ended != nullptr && now >= ended->when + kReasonGrace) {
      core_->fail(Status(StatusCode::peer_lost, fmt::format("{} {}", core_->describe_rank(rank), ended->how)));
    }
  }
}

void MessageLane::fail_all() {
  const auto now = Clock::now();
  for (auto& peer : peers_) {
    for (auto& message : peer.outgoing) settle(message.work, core_->failure_of(message.name, now - message.started));
    for (auto& posted : peer.posted) settle(posted.work, core_->failure_of(posted.name, now - posted.started));
    if (peer.incoming.target) {
      auto& target = *peer.incoming.target;
      settle(target.work, core_->failure_of(target.name, now - target.started));
    }
    peer.outgoing.clear();
    peer.posted.clear();
    peer.incoming = Incoming{};
    peer.to_ended = {now, kClosed};
    peer.from_ended = {now, kClosed};
  }
  for (auto& posted : from_any_) settle(posted.work, core_->failure_of(posted.name, now - posted.started));
  from_any_.clear();
}

void MessageLane::close() {
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    closing_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
  connectors_.join_all();
  if (core_->links() != nullptr) core_->links()->set_listener(kMessagesRole, nullptr);
  const auto give_up = [](const Posted& posted) {
    posted.work->complete(Status(StatusCode::closed, posted.name + " was pending when its group was destroyed"));
  };
  for (auto& peer : peers_) {
    for (const auto& posted : peer.posted) give_up(posted);
    if (peer.incoming.target) give_up(*peer.incoming.target);
    peer.posted.clear();
    peer.incoming.target.reset();
  }
  for (const auto& posted : from_any_) give_up(posted);
  from_any_.clear();
}

}  // namespace lockstep
