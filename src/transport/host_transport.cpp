#include "transport/host_transport.h"

#include <fmt/format.h>
#include <sched.h>

#include <chrono>
#include <thread>
#include <utility>

#include "base/futex.h"
#include "base/prefetch.h"
#include "transport/oversubscription.h"

namespace lockstep {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// How long to spin before sleeping: about as long as a sleep and a wake cost together.
constexpr microseconds kSpin{50};
// How often to yield before sleeping when there are more ranks than processors: by then every
// rank has run once, so a rank that is still missing is busy with something else.
constexpr int kYields = 40;
// How long to wait for the last ranks, which run on other processors, before yielding: about as long as
// those processors need to run each of their ranks once.
constexpr microseconds kRotation{10};
// Moves are rare, so that the kernel's own placement of threads prevails.
constexpr milliseconds kBetweenMoves{2};
constexpr milliseconds kLongestSleep{50};
// How much of the next announcement is prefetched for writing.
constexpr std::size_t kPrefetchPayload = 1024;
constexpr int kPrefetchPeers = 4;
constexpr std::size_t kWatchedPayload = 256;

// More ranks than processors that all of them together may use.
bool is_oversubscribed(const HostTransport::Config& config) {
  cpu_set_t together;
  CPU_ZERO(&together);
  const int ranks = static_cast<int>(config.ranks.size());
  for (int local = 0; local < ranks; ++local) CPU_OR(&together, &together, &config.arena.area(local).cpus);
  const int processors = CPU_COUNT(&together);
  return config.busy_machine || (processors > 0 && ranks > processors);
}

std::vector<int> processors_in(const cpu_set_t& set) {
  std::vector<int> processors;
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (CPU_ISSET(processor, &set)) processors.push_back(processor);
  }
  return processors;
}

}  // namespace

HostTransport::HostTransport(Config config)
    : config_(std::move(config)),
      oversubscribed_(is_oversubscribed(config_)),
      processors_(processors_in(area(local_rank()).cpus)),
      processor_of_(config_.ranks.size()),
      peers_(local_size()) {}

void HostTransport::note_processor(int processor) {
  // Relaxed: a hint; nothing depends on it. Written only when it changes, so that its line stays in
  // the caches of all ranks.
  auto& noted = area(local_rank()).processor.value;
  const auto here = static_cast<std::uint32_t>(processor);
  if (noted.load(std::memory_order_relaxed) != here) noted.store(here, std::memory_order_relaxed);
}

void HostTransport::leave_oversubscribed_processor() {
  for (int local = 0; local < local_size(); ++local) {
    // Relaxed: as in note_processor.
    const std::uint32_t processor = area(local).processor.value.load(std::memory_order_relaxed);
    processor_of_[static_cast<std::size_t>(local)] = static_cast<int>(processor);
  }
  const int target = less_oversubscribed_processor(processor_of_, local_rank(), processors_);
  if (target < 0) return;
  const auto now = Deadline::Clock::now();
  if (now < next_move_) return;
  next_move_ = now + kBetweenMoves;
  move_to_processor(target);
  note_processor(::sched_getcpu());
}

// Relaxed: the store of the ticket in publish() makes it visible to withdraw().
void HostTransport::enter() { area(local_rank()).inside.value.store(1, std::memory_order_relaxed); }
// Release: pairs with the acquire in withdraw(). What was written to the memory of other ranks is visible by then.
void HostTransport::leave() { area(local_rank()).inside.value.store(0, std::memory_order_release); }

bool HostTransport::withdraw(const std::function<bool(int)>& is_gone, Deadline deadline) {
  // Sequentially consistent, as publish() and the loads in wait_announced(): a rank either finds that this
  // announcement was withdrawn, or we see its own announcement, and with it that the rank is inside.
  area(local_rank()).slots[ticket_ % 2].ticket.store(0);
  const auto is_outside = [&](int local) {
    for (auto& slot : area(local).slots) static_cast<void>(slot.ticket.load());
    return area(local).inside.value.load(std::memory_order_acquire) == 0;  // pairs with the release in leave()
  };
  for (int local = 0; local < local_size(); ++local) {
    if (local == local_rank()) continue;
    while (!is_outside(local) && !is_gone(group_rank(local))) {
      if (deadline.expired()) return false;
      std::this_thread::sleep_for(microseconds(50));
    }
  }
  return true;
}

Announcement& HostTransport::next_announcement() { return area(local_rank()).slots[(ticket_ + 1) % 2]; }

void HostTransport::publish() {
  ++ticket_;
  // If a peer has announced before us: its cache line is transferred while we wait for ours, not after.
  if (local_size() <= kPrefetchPeers) {
    for (int local = 0; local < local_size(); ++local) __builtin_prefetch(&announcement(local));
  }
  if (oversubscribed_) note_processor(::sched_getcpu());
  auto& mine = area(local_rank()).slots[ticket_ % 2];
  // Sequentially consistent, as the load of `sleepers` in signal_arrival: either we see the
  // sleeper, or it sees our ticket.
  mine.ticket.store(ticket_);
  signal_arrival();
}

const Announcement& HostTransport::announcement(int local) const { return area(local).slots[ticket_ % 2]; }
const std::byte* HostTransport::payload(int local) const { return config_.arena.payload(local, ticket_ % 2); }
std::byte* HostTransport::next_payload() { return config_.arena.payload(local_rank(), (ticket_ + 1) % 2); }

Status HostTransport::wait_announced(WaitScope& scope) {
  const std::size_t watched = last_payload_ <= kWatchedPayload ? last_payload_ : 0;
  Status status = wait_until(scope, [this, watched](int local) {
    const auto& theirs = announcement(local);
    if (theirs.ticket.load() == ticket_) return true;
    // A payload of few lines shall arrive together with the ticket, not after it.
    for (std::size_t line = 0; line < watched; line += kCacheLine) __builtin_prefetch(payload(local) + line);
    return false;
  });
  // No rank uses the other slot any more. The transfer of its lines from the readers' caches
  // proceeds in the background, and is complete when we next announce.
  prefetch_for_writing(&next_announcement(), kCacheLine);
  prefetch_for_writing(next_payload(), std::min(last_payload_, kPrefetchPayload));
  return status;
}

void HostTransport::prepare_payload(std::size_t bytes) {
  last_payload_ = bytes;
  prefetch_for_writing(next_payload(), bytes);
}

void HostTransport::arrive() {
  area(local_rank()).arrived.value.store(++arrived_);
  signal_arrival();
}

Status HostTransport::wait_arrived(WaitScope& scope) {
  return wait_until(
      scope, [this](int local) { return static_cast<std::int32_t>(area(local).arrived.value.load() - arrived_) >= 0; });
}

void HostTransport::signal_arrival() {
  auto& host = config_.arena.words();
  expected_ += static_cast<std::uint32_t>(local_size());
  if (oversubscribed_) {
    // Waking a rank before the last one has arrived would only make it run, check, and sleep again.
    // At least, not equal: a rank that saw our arrival may count its next one before we count ours.
    const std::uint32_t arrivals = host.arrivals.value.fetch_add(1) + 1;
    const bool all_arrived = static_cast<std::int32_t>(arrivals - expected_) >= 0;
    if (!all_arrived) return;
  }
  if (host.sleepers.value.load() != 0) ring_bell();
}

void HostTransport::ring_bell() {
  auto& bell = config_.arena.words().bell.value;
  bell.fetch_add(1);
  futex_wake_all(bell);
}

// Returns whether `ready` became true in the time given.
template <typename Ready>
bool HostTransport::spin(const WaitScope& scope, Deadline::Duration how_long, const Ready& ready) const {
  constexpr int kTurnsPerClockRead = 64;
  auto until = Deadline::Clock::time_point::min();
  while (!scope.stopped()) {
    for (int turn = 0; turn < kTurnsPerClockRead; ++turn) {
      if (ready()) return true;
      cpu_relax();
    }
    const auto now = Deadline::Clock::now();
    if (until == Deadline::Clock::time_point::min()) until = now + how_long;
    if (now >= until) return ready();
  }
  return false;
}

// The first phase of a wait on an oversubscribed host, without sleeping. Returns whether `ready` became true.
template <typename Ready, typename MissingHere>
bool HostTransport::yield(const WaitScope& scope, const Ready& ready, const MissingHere& missing_here) {
  if (ready()) return true;
  leave_oversubscribed_processor();
  bool has_spun = false;
  for (int turn = 0; turn < kYields && !scope.stopped(); ++turn) {
    if (ready()) return true;
    // All ranks of this processor have arrived: after a yield they could only check, too. Checking here saves
    // two context switches, and the wait ends as soon as the last rank arrives on another processor.
    if (!has_spun && !missing_here()) {
      has_spun = true;
      if (spin(scope, kRotation, ready)) return true;
    }
    ::sched_yield();
  }
  return ready();
}

// Waits until `ready_peer(local)` holds for every local rank.
template <typename Ready>
Status HostTransport::wait_until(WaitScope& scope, const Ready& ready_peer) {
  const int size = local_size();
  int first_missing = 0;  // all ranks below are ready, and stay so
  const auto ready = [&] {
    while (first_missing < size && ready_peer(first_missing)) ++first_missing;
    return first_missing == size;
  };
  const auto missing_here = [&] {
    const auto here = static_cast<std::uint32_t>(::sched_getcpu());
    for (int local = first_missing; local < size; ++local) {
      // Relaxed: a hint; nothing depends on it.
      const bool shares = area(local).processor.value.load(std::memory_order_relaxed) == here;
      if (shares && !ready_peer(local)) return true;
    }
    return false;
  };
  if (oversubscribed_ ? yield(scope, ready, missing_here) : spin(scope, kSpin, ready)) return Status();

  auto& host = config_.arena.words();
  host.sleepers.value.fetch_add(1);
  Status status;
  while (true) {
    const std::uint32_t rung = host.bell.value.load();
    if (ready()) break;
    std::vector<int> missing;
    for (int local = first_missing; local < size; ++local) {
      if (!ready_peer(local)) missing.push_back(group_rank(local));
    }
    status = scope.check(missing);
    if (!status.ok()) break;
    futex_wait(host.bell.value, rung, std::min<Deadline::Duration>(kLongestSleep, scope.deadline().remaining()));
  }
  host.sleepers.value.fetch_sub(1);
  return status;
}

std::uint32_t HostTransport::add_own_region(Region region) {
  const std::lock_guard lock(regions_mutex_);
  const std::uint32_t id = next_region_++;
  own_by_address_.emplace(region.data, id);
  own_.emplace(id, std::move(region));
  return id;
}

void HostTransport::drop_own_region(std::uint32_t id) {
  const std::lock_guard lock(regions_mutex_);
  const auto entry = own_.find(id);
  if (entry == own_.end()) return;
  own_by_address_.erase(entry->second.data);
  own_.erase(entry);
}

void HostTransport::add_peer_region(int local, std::uint32_t id, Region region) {
  {
    const std::lock_guard lock(regions_mutex_);
    peers_[local].insert_or_assign(id, std::move(region));
  }
  region_added_.notify_all();
}

void HostTransport::drop_peer_region(int local, std::uint32_t id) {
  const std::lock_guard lock(regions_mutex_);
  peers_[local].erase(id);
}

MemoryRef HostTransport::find(const void* data, std::size_t bytes) const {
  const auto* first = static_cast<const std::byte*>(data);
  if (config_.one_address_space) {
    return MemoryRef{.region = 1, .offset = reinterpret_cast<std::uintptr_t>(first)};
  }
  const std::lock_guard lock(regions_mutex_);
  auto after = own_by_address_.upper_bound(first);
  if (after == own_by_address_.begin()) return {};
  const auto& [start, id] = *std::prev(after);
  const auto offset = static_cast<std::size_t>(first - start);
  const std::size_t size = own_.at(id).size;
  if (offset > size || bytes > size - offset) return {};
  return MemoryRef{.region = id, .offset = offset};
}

Result<PeerView> HostTransport::resolve(int local, MemoryRef ref, std::size_t bytes, WaitScope& scope) {
  if (config_.one_address_space) return PeerView{reinterpret_cast<std::byte*>(ref.offset), nullptr};

  std::unique_lock lock(regions_mutex_);
  auto& regions = local == local_rank() ? own_ : peers_[local];
  auto entry = regions.find(ref.region);
  if (entry == regions.end() && local != local_rank() && request_region_) {
    lock.unlock();
    request_region_(local, ref.region);
    lock.lock();
    entry = regions.find(ref.region);
  }
  while (entry == regions.end()) {
    region_added_.wait_for(lock, kLongestSleep);
    entry = regions.find(ref.region);
    if (entry != regions.end()) break;
    lock.unlock();
    const int rank = group_rank(local);
    LOCKSTEP_RETURN_IF_ERROR(scope.check(std::span(&rank, 1)));
    lock.lock();
  }
  const Region& region = entry->second;
  if (ref.offset > region.size || bytes > region.size - ref.offset) {
    return Status(StatusCode::protocol_error,
                  fmt::format("rank {} announced {} bytes at offset {} of its registered region {}, which has {} bytes",
                              group_rank(local), bytes, ref.offset, ref.region, region.size));
  }
  return PeerView{region.data + ref.offset, region.hold};
}

}  // namespace lockstep
