#include "rendezvous/link_acceptor.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <system_error>

#include "base/log.h"
#include "base/net/socket.h"
#include "rendezvous/probe.h"

namespace lockstep {
namespace {

// While this many connections are in their handshake, no more are accepted; the kernel queues them.
constexpr std::size_t kMaxCandidates = 1024;

// The remaining time, for poll(2).
int timeout_until(const std::optional<Deadline>& deadline) { return deadline ? deadline->poll_timeout_ms() : -1; }

}  // namespace

LinkAcceptor::Candidate::Candidate(LinkAcceptor& owner, UniqueFd connection, bool over_unix)
    : fd(std::move(connection)),
      is_unix(over_unix),
      check([&owner, this](const ConnectionIdentity& identity) { return owner.check_identity(identity, *this); }),
      handshake(owner.context_.secret, check) {}

LinkAcceptor::LinkAcceptor(LinkContext context, UniqueFd unix_listener, UniqueFd wake)
    : context_(std::move(context)), wake_(std::move(wake)) {
  listeners_.emplace_back(std::move(unix_listener), true);
}

Result<std::unique_ptr<LinkAcceptor>> LinkAcceptor::start(LinkContext context, UniqueFd unix_listener) {
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) {
    return Status(StatusCode::resource_exhausted, fmt::format("cannot create an eventfd: {}", errno_text(errno)));
  }
  std::unique_ptr<LinkAcceptor> acceptor(
      new LinkAcceptor(std::move(context), std::move(unix_listener), std::move(wake)));
  try {
    acceptor->thread_ = std::thread([raw = acceptor.get()] { raw->run(); });
  } catch (const std::system_error& error) {
    return Status(StatusCode::resource_exhausted,
                  fmt::format("cannot start the thread that accepts connections: {}", error.what()));
  }
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
    return !error_.ok() ||
           std::all_of(names.begin(), names.end(), [&](const auto& name) { return links_.contains(name); });
  };
  if (!changed_.wait_until(lock, deadline.when(), done)) {
    return Status(StatusCode::timed_out, "not all higher ranks have connected");
  }
  return error_;
}

void LinkAcceptor::drop_links_of(int peer) {
  const std::lock_guard lock(mutex_);
  std::erase_if(links_, [&](const auto& link) { return link.first.peer == peer; });
}

UniqueFd LinkAcceptor::take(const LinkName& name) {
  const std::lock_guard lock(mutex_);
  return std::move(links_.at(name));
}

void LinkAcceptor::run() {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_ || !error_.ok()) break;
    }
    adopt_new_listener();
    std::vector<pollfd> entries{{wake_.get(), POLLIN, 0}};
    for (const auto& [fd, is_unix] : listeners_) {
      entries.push_back({candidates_.size() < kMaxCandidates ? fd.get() : -1, POLLIN, 0});
    }
    std::optional<Deadline> earliest;
    for (const auto& candidate : candidates_) {
      entries.push_back({candidate.fd.get(), POLLIN, 0});
      earliest = earliest ? earliest->earlier(candidate.deadline) : candidate.deadline;
    }
    if (::poll(entries.data(), entries.size(), timeout_until(earliest)) < 0 && errno != EINTR) {
      stop_with(Status(StatusCode::internal, fmt::format("poll failed: {}", errno_text(errno))));
    }

    auto entry = entries.begin() + 1 + static_cast<std::ptrdiff_t>(listeners_.size());
    for (auto candidate = candidates_.begin(); candidate != candidates_.end(); ++entry) {
      const bool ended = entry->revents != 0 && advance(*candidate) == Progress::ended;
      candidate = ended ? candidates_.erase(candidate) : std::next(candidate);
    }
    drop_expired();
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
  if (new_listener_.valid()) listeners_.emplace_back(std::move(new_listener_), false);
}

void LinkAcceptor::accept_all(int listener, bool is_unix) {
  while (candidates_.size() < kMaxCandidates) {
    auto fd = accept_from(listener, Deadline::after(Deadline::Duration::zero()));
    if (fd.ok()) {
      candidates_.emplace_back(*this, *std::move(fd), is_unix);
      continue;
    }
    if (fd.status().code() == StatusCode::resource_exhausted) stop_with(fd.status());
    return;
  }
}

LinkAcceptor::Progress LinkAcceptor::advance(Candidate& candidate) {
  std::array<std::byte, 2048> buffer;
  const bool accepted = candidate.handshake.state() == AcceptorHandshake::State::accepted;
  // Not more: what follows belongs to the link.
  const std::size_t wanted = accepted ? 1 : std::min(candidate.handshake.wanted(), buffer.size());
  const auto got = ::recv(candidate.fd.get(), buffer.data(), wanted, 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? Progress::pending : Progress::ended;
  if (got == 0) return Progress::ended;
  if (accepted) {
    if (buffer[0] == kLinkConfirmed) finish(candidate);
    return Progress::ended;
  }
  candidate.handshake.feed(std::span(buffer).first(static_cast<std::size_t>(got)));
  const Bytes output = candidate.handshake.take_output();
  // An answer is far smaller than an empty socket buffer: if it does not fit at once, the peer does not read.
  if (!output.empty() && !send_all(candidate.fd.get(), output, Deadline::after(Deadline::Duration::zero())).ok()) {
    return Progress::ended;
  }
  if (candidate.handshake.state() != AcceptorHandshake::State::refused) return Progress::pending;
  finish(candidate);
  return Progress::ended;
}

void LinkAcceptor::finish(Candidate& candidate) {
  if (candidate.handshake.state() == AcceptorHandshake::State::refused) {
    log_warn("refused a connection from {}: {}", peer_text(candidate.fd.get()),
             candidate.handshake.refusal().message());
    return;
  }
  const auto& identity = candidate.handshake.identity();
  {
    const std::lock_guard lock(mutex_);
    // A rank whose first attempt timed out may authenticate again: the latest connection counts.
    links_.insert_or_assign({identity.from_rank, identity.role, identity.index}, std::move(candidate.fd));
  }
  changed_.notify_all();
}

Status LinkAcceptor::check_identity(const ConnectionIdentity& identity, const Candidate& candidate) {
  const auto refuse = [](const std::string& why) { return Status(StatusCode::invalid_argument, why); };
  if (identity.group != context_.group_id) {
    return refuse(fmt::format("it wants group '{}', this is '{}'", identity.group, context_.group_id));
  }
  if (identity.to_rank != context_.rank) {
    return refuse(fmt::format("it wants rank {}, this is rank {}", identity.to_rank, context_.rank));
  }
  if (identity.from_rank <= context_.rank || identity.from_rank >= static_cast<int>(context_.members.size())) {
    return refuse(fmt::format("rank {} does not connect to rank {}", identity.from_rank, context_.rank));
  }
  const std::uint32_t links = identity.role == kDataRole                                        ? context_.data_streams
                              : identity.role == kControlRole || identity.role == kMessagesRole ? 1
                                                                                                : 0;
  if (identity.index >= links) {
    return refuse(fmt::format("there is no link '{}' number {}", identity.role, identity.index));
  }
  const auto& peer = context_.members[static_cast<std::size_t>(identity.from_rank)];
  if (candidate.is_unix) {
    const auto& self = context_.members[static_cast<std::size_t>(context_.rank)];
    LOCKSTEP_RETURN_IF_ERROR(check_credentials(candidate.fd.get(), peer, self));
  }
  return {};
}

void LinkAcceptor::drop_expired() {
  candidates_.remove_if([](const Candidate& candidate) {
    if (!candidate.deadline.expired()) return false;
    log_warn("dropped a connection from {} that did not finish the handshake in {} s", peer_text(candidate.fd.get()),
             kHandshakeTimeout.count());
    return true;
  });
}

void LinkAcceptor::stop_with(const Status& error) {
  {
    const std::lock_guard lock(mutex_);
    error_ = error;
  }
  changed_.notify_all();
}

}  // namespace lockstep
