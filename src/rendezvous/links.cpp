#include "rendezvous/links.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

namespace lockstep {
namespace {

// A packet may be lost, and the other end may be busy; a new attempt is then faster than waiting.
constexpr std::chrono::milliseconds kConnectAttempt{500};
// Before the next attempt at a rank that had no room.
constexpr std::chrono::milliseconds kBusyPause{10};

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
    // A rank that must make room refuses connections that it does not know yet: worth another attempt.
    const bool busy = channel.status().code() == StatusCode::unavailable;
    if (busy) std::this_thread::sleep_for(std::min<Deadline::Duration>(kBusyPause, deadline.remaining()));
    const Status why = busy ? Status(StatusCode::timed_out, channel.status().message()) : channel.status();
    return why.with_context(purpose_of(name, context));
  }
  const Status confirmed = send_all(*channel, std::span(&kLinkConfirmed, 1), deadline);
  if (!confirmed.ok()) return confirmed.with_context(purpose_of(name, context));
  return channel;
}

Result<Channel> make_link(const SocketAddress& address, const LinkName& name, const LinkContext& context,
                          Deadline deadline) {
  auto fd = connect_to(address, deadline.earlier(Deadline::after(kConnectAttempt)));
  if (!fd.ok()) return fd.status().with_context(purpose_of(name, context));
  return introduce(*std::move(fd), name, context, deadline);
}

std::string purpose_of(const LinkName& name, const LinkContext& context) {
  return fmt::format("connecting to {} (link '{}' number {})",
                     context.members[static_cast<std::size_t>(name.peer)].describe(), name.role, name.index);
}

}  // namespace lockstep
