#include "rendezvous/links.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "rendezvous/probe.h"

namespace lockstep {
namespace {

// Before the next attempt at a rank that had no room.
constexpr std::chrono::milliseconds kBusyPause{10};
// Before the next attempt after an error of this host or of the network.
constexpr std::chrono::milliseconds kErrorPause{50};

// Of an attempt that has failed, while another one may succeed. Waits first, because callers try again at once.
Status try_again_after(std::chrono::milliseconds pause, const Status& why, Deadline deadline) {
  std::this_thread::sleep_for(std::min<Deadline::Duration>(pause, deadline.remaining()));
  return Status(StatusCode::timed_out, why.message());
}

// A rank that must make room refuses connections that it does not know yet, or closes them if their handshake has
// begun. One whose process has ended refuses the next attempt.
bool had_no_room(StatusCode code) {
  return code == StatusCode::unavailable || code == StatusCode::resource_exhausted || code == StatusCode::peer_lost;
}

}  // namespace

std::vector<ConnectionIdentity> links_to(const LinkContext& context) {
  std::vector<ConnectionIdentity> links;
  const auto add = [&](const char* role, int from, int count) {
    for (int index = 0; index < count; ++index) {
      links.push_back({.role = role,
                       .group = context.group_id,
                       .from_rank = from,
                       .to_rank = context.rank,
                       .index = static_cast<std::uint32_t>(index)});
    }
  };
  for (int from = 0; from < static_cast<int>(context.members.size()); ++from) {
    if (from != context.rank) add(kMessagesRole, from, 1);
    if (from <= context.rank) continue;
    add(kControlRole, from, 1);
    add(kDataRole, from, context.data_streams);
  }
  return links;
}

Result<Channel> introduce(UniqueFd fd, const LinkName& name, const LinkContext& context, Deadline deadline) {
  const ConnectionIdentity identity{.role = name.role,
                                    .group = context.group_id,
                                    .from_rank = context.rank,
                                    .to_rank = name.peer,
                                    .index = name.index};
  auto channel = connect_channel(std::move(fd), context.secret, identity, context.encryption, deadline);
  if (!channel.ok()) {
    const Status why = channel.status().with_context(purpose_of(name, context));
    return had_no_room(why.code()) ? try_again_after(kBusyPause, why, deadline) : why;
  }
  const Status confirmed = send_all(*channel, std::span(&kLinkConfirmed, 1), deadline);
  if (confirmed.ok()) return channel;
  const Status why = confirmed.with_context(purpose_of(name, context));
  return had_no_room(why.code()) ? try_again_after(kBusyPause, why, deadline) : why;
}

Result<Channel> make_link(const SocketAddress& address, const LinkName& name, const LinkContext& context,
                          Deadline deadline, std::chrono::milliseconds connect_time) {
  // A packet may be lost, and the other end may be busy; a new attempt is then faster than waiting.
  const Deadline attempt = deadline.earlier(Deadline::after(connect_time));
  auto fd = connect_to(address, attempt);
  if (!fd.ok()) {
    const Status why = fd.status().with_context(purpose_of(name, context));
    const bool passes = why.code() == StatusCode::timed_out || why.code() == StatusCode::resource_exhausted;
    return passes && !attempt.expired() ? try_again_after(kErrorPause, why, attempt) : why;
  }
  if (address.family() == AF_UNIX) {
    // Any process can take the name once its owner has ended.
    const auto& peer = context.members[static_cast<std::size_t>(name.peer)];
    const auto& self = context.members[static_cast<std::size_t>(context.rank)];
    const Status same = check_credentials(fd->get(), peer, self);
    if (!same.ok()) return same.with_context(purpose_of(name, context));
  }
  return introduce(*std::move(fd), name, context, deadline);
}

std::string purpose_of(const LinkName& name, const LinkContext& context) {
  return fmt::format("connecting to {} (link '{}' number {})",
                     context.members[static_cast<std::size_t>(name.peer)].describe(), name.role, name.index);
}

}  // namespace lockstep
