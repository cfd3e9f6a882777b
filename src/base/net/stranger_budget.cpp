#include "base/net/stranger_budget.h"

#include <netinet/in.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <string_view>

namespace lockstep {
namespace {

// Of all listeners. Only a bound: nothing is ordered by it.
std::atomic<std::size_t> in_process{0};

// A host with one IPv6 address usually has the whole /64 network.
std::string source_of(const SocketAddress& address) {
  constexpr std::size_t kNetworkBytes = 8;
  if (address.family() != AF_INET6) return address.host();
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr;
  return {reinterpret_cast<const char*>(v6.s6_addr), kNetworkBytes};
}

}  // namespace

StrangerBudget::Limits StrangerBudget::limits_for(std::size_t descriptors) {
  Limits limits;
  limits.listener = std::clamp<std::size_t>(descriptors / 8, 16, 1024);
  limits.address = limits.listener / 2;
  limits.process = 2 * limits.listener;
  return limits;
}

StrangerBudget::Limits StrangerBudget::limits_of_process(std::size_t most) {
  rlimit limit{};
  // Cannot fail for this process; if it did, the smallest budget would still work.
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = 0;
  Limits limits = limits_for(static_cast<std::size_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 20)));
  limits.listener = std::clamp<std::size_t>(most, 1, limits.listener);
  limits.address = std::max<std::size_t>(limits.listener / 2, 1);
  return limits;
}

StrangerBudget::~StrangerBudget() { in_process.fetch_sub(entries_.size(), std::memory_order_relaxed); }

bool StrangerBudget::full() const {
  return entries_.size() >= limits_.listener ||
         (entries_.size() >= kAlways && in_process.load(std::memory_order_relaxed) >= limits_.process);
}

const StrangerBudget::Entry* StrangerBudget::oldest_that_spoke() const {
  const auto entry = std::find_if(entries_.begin(), entries_.end(), [](const Entry& one) { return !one.silent; });
  return entry == entries_.end() ? nullptr : &*entry;
}

bool StrangerBudget::may_accept(Clock::time_point now) const {
  if (!full() || !silent_by_source_.empty()) return true;
  const Entry* const entry = oldest_that_spoke();
  return entry == nullptr || entry->since + kFairTime <= now;
}

StrangerBudget::Clock::time_point StrangerBudget::retry_at() const {
  const Entry* const entry = oldest_that_spoke();
  return entry == nullptr ? Clock::time_point::min() : entry->since + kFairTime;
}

void StrangerBudget::add(int fd, const SocketAddress& from, Clock::time_point now) {
  const auto source = silent_by_source_.try_emplace(source_of(from), 0).first;
  ++source->second;
  by_fd_[fd] = entries_.insert(entries_.end(), {.fd = fd, .since = now, .silent = true, .source = source});
  in_process.fetch_add(1, std::memory_order_relaxed);
}

void StrangerBudget::forget_source(Entry& entry) {
  if (!entry.silent) return;
  entry.silent = false;
  if (--entry.source->second == 0) silent_by_source_.erase(entry.source);
}

void StrangerBudget::has_spoken(int fd) {
  if (const auto found = by_fd_.find(fd); found != by_fd_.end()) forget_source(*found->second);
}

bool StrangerBudget::remove(int fd) {
  const auto found = by_fd_.find(fd);
  if (found == by_fd_.end()) return false;
  forget_source(*found->second);
  entries_.erase(found->second);
  by_fd_.erase(found);
  in_process.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

bool StrangerBudget::is_silent(int fd) const {
  const auto found = by_fd_.find(fd);
  return found != by_fd_.end() && found->second->silent;
}

std::optional<StrangerBudget::Oldest> StrangerBudget::oldest() const {
  if (entries_.empty()) return std::nullopt;
  return Oldest{.fd = entries_.front().fd, .since = entries_.front().since};
}

std::optional<int> StrangerBudget::least_wanted() const {
  const Entry* least = nullptr;
  for (const Entry& entry : entries_) {
    if (entry.silent && (least == nullptr || entry.source->second > least->source->second)) least = &entry;
  }
  if (least == nullptr) return std::nullopt;
  return least->fd;
}

std::optional<int> StrangerBudget::excess(int newest, Clock::time_point now) const {
  const bool over = entries_.size() > limits_.listener ||
                    (entries_.size() > kAlways && in_process.load(std::memory_order_relaxed) > limits_.process);
  if (over) {
    if (const auto silent = least_wanted()) return silent;
    const Entry* const entry = oldest_that_spoke();
    if (entry != nullptr && entry->since + kFairTime <= now) return entry->fd;
    return std::nullopt;
  }
  const auto added = by_fd_.find(newest);
  if (added == by_fd_.end() || !added->second->silent || added->second->source->second <= limits_.address) {
    return std::nullopt;
  }
  const auto same = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.silent && entry.source == added->second->source;
  });
  return same->fd;
}

}  // namespace lockstep
