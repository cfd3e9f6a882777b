#include "rendezvous/link_acceptor.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include "base/log.h"
#include "base/net/fork_guard.h"
#include "base/net/socket.h"
#include "base/start_thread.h"
#include "rendezvous/probe.h"

namespace lockstep {
namespace {

// While this many connections over Unix sockets are in their handshake, no more are accepted; the kernel queues them.
// Only this user's processes can make so many. Those over TCP make room for each other, but this never keeps them out.
constexpr std::size_t kMaxUnixCandidates = 1024;
// Of the candidates over TCP, if the limit of descriptors allows it.
constexpr std::size_t kMaxStrangers = 1024;
// Few, so that a flood of connections does not delay those that are in their handshake.
constexpr int kAcceptBatch = 64;
// How long to wait if the system cannot provide more connections.
constexpr std::chrono::milliseconds kAcceptPause{100};

// The remaining time, for poll(2).
int timeout_until(const std::optional<Deadline>& deadline) { return deadline ? deadline->poll_timeout_ms() : -1; }

}  // namespace

LinkAcceptor::Candidate::Candidate(LinkAcceptor& owner, UniqueFd connection, bool over_unix)
    : number(connection.get()),
      is_unix(over_unix),
      acceptor(std::move(connection), owner.rules_,
               [&owner, this](const ConnectionIdentity& identity) { return owner.check_identity(identity, *this); }) {}

LinkAcceptor::LinkAcceptor(std::shared_ptr<const LinkContext> context, UniqueFd unix_listener, UniqueFd wake)
    : context_(std::move(context)),
      wake_(std::move(wake)),
      rules_{.secret = context_->secret, .group = context_->group_id, .policy = context_->encryption},
      strangers_(StrangerBudget::limits_of_process(kMaxStrangers)) {
  close_in_forked_children(unix_listener.get());
  listeners_.emplace_back(std::move(unix_listener), true);
}

Result<std::unique_ptr<LinkAcceptor>> LinkAcceptor::start(std::shared_ptr<const LinkContext> context,
                                                          UniqueFd unix_listener) {
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) {
    return Status(StatusCode::resource_exhausted, fmt::format("cannot create an eventfd: {}", errno_text(errno)));
  }
  std::unique_ptr<LinkAcceptor> acceptor(
      new LinkAcceptor(std::move(context), std::move(unix_listener), std::move(wake)));
  auto thread = start_thread("accepts connections", [raw = acceptor.get()] { raw->run(); });
  if (!thread.ok()) return thread.status();
  acceptor->thread_ = *std::move(thread);
  return acceptor;
}

LinkAcceptor::~LinkAcceptor() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
}

void LinkAcceptor::wake() const {
  const std::uint64_t one = 1;
  // Can fail only if the counter is full, and then the thread is awake anyway.
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof(one));
}

void LinkAcceptor::add_listener(UniqueFd tcp_listener) {
  {
    const std::lock_guard lock(mutex_);
    new_listener_ = std::move(tcp_listener);
  }
  wake();
}

std::vector<LinkName> LinkAcceptor::missing(const std::vector<LinkName>& names) {
  const std::lock_guard lock(mutex_);
  std::vector<LinkName> result;
  std::copy_if(names.begin(), names.end(), std::back_inserter(result),
               [&](const LinkName& name) { return !links_.contains(name); });
  return result;
}

Status LinkAcceptor::wait_for(const std::vector<LinkName>& names, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto done = [&] {
    return std::all_of(names.begin(), names.end(), [&](const auto& name) { return links_.contains(name); });
  };
  if (!changed_.wait_until(lock, deadline.when(), done)) {
    return Status(StatusCode::timed_out, "not all higher ranks have connected");
  }
  return {};
}

Status LinkAcceptor::accept_error() {
  const std::lock_guard lock(mutex_);
  return accept_error_;
}

void LinkAcceptor::drop_unix_links_of(int peer) {
  const std::lock_guard lock(mutex_);
  std::erase_if(links_, [&](const auto& link) { return link.first.peer == peer && link.second.is_unix; });
}

Channel LinkAcceptor::take(const LinkName& name) {
  const std::lock_guard lock(mutex_);
  const auto link = links_.find(name);
  Channel channel = std::move(link->second.channel);
  links_.erase(link);
  return channel;
}

LinkSource::Links LinkAcceptor::take_all(const std::string& role) {
  const std::lock_guard lock(mutex_);
  LinkSource::Links taken;
  for (auto link = links_.begin(); link != links_.end();) {
    if (link->first.role != role) {
      ++link;
      continue;
    }
    taken.emplace_back(link->first, std::move(link->second.channel));
    link = links_.erase(link);
  }
  return taken;
}

void LinkAcceptor::set_listener(const std::string& role, std::function<void()> listener) {
  const std::lock_guard lock(mutex_);
  listeners_of_[role] = std::move(listener);
}

void LinkAcceptor::run() {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) break;
    }
    adopt_new_listener();
    std::vector<pollfd> entries{{wake_.get(), POLLIN, 0}};
    for (const auto& [fd, is_unix] : listeners_) entries.push_back({accepts(is_unix) ? fd.get() : -1, POLLIN, 0});
    for (const auto& candidate : candidates_) entries.push_back({candidate.number, POLLIN, 0});
    if (::poll(entries.data(), entries.size(), poll_timeout_ms()) < 0 && errno != EINTR) {
      // The system lacks memory, or the limit of descriptors is below what is open already. Both can pass, and without
      // this thread other ranks would take this process for ended.
      must_wait(Status(StatusCode::resource_exhausted, fmt::format("poll failed: {}", errno_text(errno))));
      std::this_thread::sleep_for(kAcceptPause);
    }

    auto entry = entries.begin() + 1 + static_cast<std::ptrdiff_t>(listeners_.size());
    for (auto candidate = candidates_.begin(); candidate != candidates_.end(); ++entry) {
      const auto present = candidate++;
      if (entry->revents != 0 && advance(*present) == Progress::ended) remove(present);
    }
    drop_expired();
    refusals_.report();
    for (std::size_t i = 0; i < listeners_.size(); ++i) {
      if (entries[i + 1].revents != 0) accept_all(listeners_[i].first.get(), listeners_[i].second);
    }
    if (entries[0].revents != 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto taken = ::read(wake_.get(), &count, sizeof(count));
    }
  }
  candidates_.clear();
  listeners_.clear();
}

void LinkAcceptor::adopt_new_listener() {
  const std::lock_guard lock(mutex_);
  if (!new_listener_.valid()) return;
  rules_.keys = LinkKeyRing(context_->secret, links_to(*context_));
  close_in_forked_children(new_listener_.get());
  listeners_.emplace_back(std::move(new_listener_), false);
}

// The handshakes' deadlines are those of the oldest candidates.
int LinkAcceptor::poll_timeout_ms() const {
  std::optional<Deadline> earliest;
  const auto wake_at = [&](Deadline deadline) { earliest = earliest ? earliest->earlier(deadline) : deadline; };
  if (!accept_again_.expired()) wake_at(accept_again_);
  if (!candidates_.empty()) wake_at(candidates_.front().deadline);
  if (const auto due = refusals_.due()) wake_at(Deadline::at(*due));
  if (!strangers_.may_accept(StrangerBudget::Clock::now())) wake_at(Deadline::at(strangers_.retry_at()));
  return timeout_until(earliest);
}

bool LinkAcceptor::accepts(bool is_unix) const {
  if (!accept_again_.expired()) return false;
  if (!is_unix) return strangers_.may_accept(StrangerBudget::Clock::now());
  return candidates_.size() - strangers_.size() < kMaxUnixCandidates;
}

void LinkAcceptor::accept_all(int listener, bool is_unix) {
  for (int i = 0; i < kAcceptBatch && accepts(is_unix); ++i) {
    auto fd = accept_from(listener, Deadline::after(Deadline::Duration::zero()));
    if (!fd.ok()) {
      if (fd.status().code() == StatusCode::resource_exhausted) lack_descriptors(fd.status());
      return;
    }
    add(*std::move(fd), is_unix);
    const std::lock_guard lock(mutex_);
    accept_error_ = {};
  }
}

void LinkAcceptor::add(UniqueFd fd, bool is_unix) {
  const int number = fd.get();
  if (is_unix) {
    if (const Status own = check_user(number); !own.ok()) return refusals_.refused("a Unix socket", own);
  }
  const auto from = peer_address(number);
  if (!from.ok()) return;  // it has closed the connection again
  candidates_.emplace_back(*this, std::move(fd), is_unix);
  if (!is_unix) strangers_.add(number, *from, StrangerBudget::Clock::now());
  // What it sent while it waited in the backlog.
  const auto added = std::prev(candidates_.end());
  if (advance(*added) == Progress::ended) remove(added);
  evict_excess(number);
}

void LinkAcceptor::evict_excess(int newest) {
  while (const auto excess = strangers_.excess(newest, StrangerBudget::Clock::now()))
    make_room(candidate_with(*excess));
}

// It may have sent something since it was polled.
void LinkAcceptor::make_room(std::list<Candidate>::iterator candidate) {
  const bool silent = strangers_.is_silent(candidate->number);
  if (advance(*candidate) == Progress::ended) {
    remove(candidate);
  } else if (strangers_.is_silent(candidate->number) == silent) {
    evict(candidate);
  }
}

void LinkAcceptor::evict(std::list<Candidate>::iterator candidate) {
  const Status why(StatusCode::unavailable,
                   fmt::format("too slow while {} connections wait to be authenticated; try again", strangers_.size()));
  candidate->acceptor.refuse(why);
  refused(*candidate, why);
  remove(candidate);
}

// Strangers must not keep the group's own connections out. If there are none, descriptors may become free later.
void LinkAcceptor::lack_descriptors(const Status& why) {
  if (const auto stranger = strangers_.least_wanted()) return make_room(candidate_with(*stranger));
  must_wait(why);
}

void LinkAcceptor::must_wait(const Status& why) {
  accept_again_ = Deadline::after(kAcceptPause);
  const std::lock_guard lock(mutex_);
  if (accept_error_.ok()) log_warn("connections of other ranks must wait: {}", why.message());
  accept_error_ = why;
}

std::list<LinkAcceptor::Candidate>::iterator LinkAcceptor::candidate_with(int fd) {
  return std::find_if(candidates_.begin(), candidates_.end(), [fd](const Candidate& one) { return one.number == fd; });
}

void LinkAcceptor::remove(std::list<Candidate>::iterator candidate) {
  strangers_.remove(candidate->number);
  candidates_.erase(candidate);
}

LinkAcceptor::Progress LinkAcceptor::advance(Candidate& candidate) {
  if (!candidate.channel.valid()) {
    if (const Status status = candidate.acceptor.advance(); !status.ok()) {
      refused(candidate, status);
      return Progress::ended;
    }
    if (candidate.acceptor.has_spoken()) strangers_.has_spoken(candidate.number);
    if (!candidate.acceptor.accepted()) return Progress::pending;
    candidate.channel = candidate.acceptor.take();
  }
  std::byte confirmation{};
  const IoResult got = candidate.channel.receive(std::span(&confirmation, 1));
  if (got.would_block) return Progress::pending;
  if (got.bytes == 1 && confirmation == kLinkConfirmed) {
    finish(candidate);
  } else if (got.error == EBADMSG) {
    refused(candidate, Status(StatusCode::peer_lost, channel_error_text(got.error)));
  }
  return Progress::ended;
}

void LinkAcceptor::refused(const Candidate& candidate, const Status& why) {
  refusals_.refused(peer_text(candidate.number), why);
}

void LinkAcceptor::finish(Candidate& candidate) {
  const auto& identity = candidate.acceptor.identity();
  {
    const std::lock_guard lock(mutex_);
    // A rank whose first attempt timed out may authenticate again: the latest connection counts.
    links_.insert_or_assign({identity.from_rank, identity.role, identity.index},
                            Accepted{std::move(candidate.channel), candidate.is_unix});
    if (const auto& listener = listeners_of_[identity.role]) listener();
  }
  changed_.notify_all();
}

Status LinkAcceptor::check_identity(const ConnectionIdentity& identity, const Candidate& candidate) {
  const auto refuse = [](const std::string& why) { return Status(StatusCode::invalid_argument, why); };
  if (identity.to_rank != context_->rank) {
    return refuse(fmt::format("it wants rank {}, this is rank {}", identity.to_rank, context_->rank));
  }
  const bool either_way = identity.role == kMessagesRole;
  const int lowest = either_way ? 0 : context_->rank + 1;
  if (identity.from_rank < lowest || identity.from_rank == context_->rank ||
      identity.from_rank >= static_cast<int>(context_->members.size())) {
    return refuse(fmt::format("rank {} does not connect to rank {}", identity.from_rank, context_->rank));
  }
  const std::uint32_t links = identity.role == kDataRole                                        ? context_->data_streams
                              : identity.role == kControlRole || identity.role == kMessagesRole ? 1
                                                                                                : 0;
  if (identity.index >= links) {
    return refuse(fmt::format("there is no link '{}' number {}", identity.role, identity.index));
  }
  const auto& peer = context_->members[static_cast<std::size_t>(identity.from_rank)];
  if (candidate.is_unix) {
    const auto& self = context_->members[static_cast<std::size_t>(context_->rank)];
    LOCKSTEP_RETURN_IF_ERROR(check_credentials(candidate.acceptor.fd(), peer, self));
  }
  return {};
}

void LinkAcceptor::drop_expired() {
  while (!candidates_.empty() && candidates_.front().deadline.expired()) {
    refused(candidates_.front(), Status(StatusCode::timed_out, fmt::format("it did not finish the handshake in {} s",
                                                                           kHandshakeTimeout.count())));
    remove(candidates_.begin());
  }
}

}  // namespace lockstep
