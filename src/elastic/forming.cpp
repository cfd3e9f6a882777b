#include "elastic/forming.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/start_thread.h"
#include "elastic/guarded_store.h"
#include "store/prefix_store.h"
#include "store/read_now.h"

namespace lockstep::elastic {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kJoinPollInterval{25};
constexpr milliseconds kWatchInterval{10};
constexpr milliseconds kFormingAnswerTime{1000};
constexpr const char* kGo = "go";
constexpr const char* kLost = "lost";
constexpr const char* kLatestGroup = "latest_group";

// Set by a member once its group is established. From then on its disconnect from the leader's store is not a loss.
std::string formed_key(int rank) { return fmt::format("formed/{}", rank); }

// Describes a registrant of the generation that disconnected before its group was established; empty: none.
std::string lost_registrant(const Forming& forming, Store& store) {
  for (const MemberStore::Registrant& registrant : forming.registrants) {
    const auto connected = forming.member_store->is_connected(registrant);
    if (!connected.ok() || *connected) continue;
    const std::string formed = formed_key(forming.answer.generation.rank_of(registrant.registration.member.id));
    if (const auto is_formed = store.check(std::span(&formed, 1), Deadline::after(kFormingAnswerTime));
        is_formed.ok() && *is_formed)
      continue;
    return fmt::format("{} was lost while the group formed", registrant.registration.member.describe());
  }
  return "";
}

std::string keys_of_generation(const std::string& id) { return fmt::format("group/{}/", id); }

// Removes what earlier generations have left in the leader's member store. Members of the previous one may still read
// why it ended.
Status remove_earlier_generations(Store& store, const std::string& id) {
  const Deadline deadline = Deadline::after(kFormingAnswerTime);
  const auto previous = read_now(store, kLatestGroup, deadline);
  if (!previous.ok()) return previous.status();
  const auto keys = store.list("group/", deadline);
  if (!keys.ok()) return keys.status();
  for (const auto& [key, value] : *keys) {
    if (key.starts_with(keys_of_generation(id))) continue;
    if (*previous && key.starts_with(keys_of_generation(**previous))) continue;
    const auto removed = store.remove(key, deadline);
    if (!removed.ok()) return removed.status();
  }
  return store.set(kLatestGroup, id, deadline);
}

// Returns ok, on all members, once all have joined.
Status meet(const Forming& forming, Store& store, Deadline deadline) {
  const Generation& generation = forming.answer.generation;
  std::vector<std::string> joined;
  for (std::size_t rank = 0; rank < generation.members.size(); ++rank) joined.push_back(fmt::format("joined/{}", rank));
  LOCKSTEP_RETURN_IF_ERROR(store.set(joined[static_cast<std::size_t>(generation.rank_of(forming.self))], "", deadline));
  if (forming.member_store == nullptr) {
    const auto go = store.get(kGo, deadline);
    if (!go.ok()) return go.status();
    return go->empty() ? Status() : Status(StatusCode::peer_lost, *go);
  }
  while (true) {
    const Status all = store.wait(joined, Deadline::after(kJoinPollInterval));
    if (all.ok()) return store.set(kGo, "", deadline);
    if (all.code() != StatusCode::timed_out) return all;
    std::string lost = lost_registrant(forming, store);
    if (lost.empty() && deadline.expired()) lost = "not all members joined in time";
    if (lost.empty()) continue;
    LOCKSTEP_RETURN_IF_ERROR(store.set(kGo, lost, Deadline::after(kFormingAnswerTime)));
    return Status(StatusCode::peer_lost, lost);
  }
}

// Closes `guarded` when a member is lost. The leader detects the loss in its member store and reports it to the others.
class LossWatch {
 public:
  // The three must outlive this. Called once.
  Status start(const Forming& forming, Store& store, GuardedStore& guarded) {
    auto thread =
        start_thread("watches for lost members", [&forming, &store, &guarded, this] { run(forming, store, guarded); });
    if (!thread.ok()) return thread.status();
    thread_ = *std::move(thread);
    return {};
  }
  LossWatch() = default;
  LossWatch(const LossWatch&) = delete;
  LossWatch& operator=(const LossWatch&) = delete;
  ~LossWatch() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    ended_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run(const Forming& forming, Store& store, GuardedStore& guarded) {
    std::unique_lock lock(mutex_);
    while (!done_) {
      lock.unlock();
      const Status status = look(forming, store);
      if (!status.ok()) return guarded.close(status.message());
      lock.lock();
      ended_.wait_for(lock, kWatchInterval, [this] { return done_; });
    }
  }

  static Status look(const Forming& forming, Store& store) {
    if (forming.member_store != nullptr) {
      if (const std::string lost = lost_registrant(forming, store); !lost.empty()) {
        (void)store.set(kLost, lost, Deadline::after(kFormingAnswerTime));
      }
    }
    const auto lost = read_now(store, kLost, Deadline::after(kFormingAnswerTime));
    if (!lost.ok()) return lost.status().code() == StatusCode::timed_out ? Status() : lost.status();
    return *lost ? Status(StatusCode::peer_lost, **lost) : Status();
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;   // guarded by mutex_
  std::thread thread_;  // last: it uses the others
};

}  // namespace

Result<std::shared_ptr<Communicator>> form_group(const Forming& forming, Deadline deadline) {
  const Generation& generation = forming.answer.generation;
  if (forming.member_store != nullptr) {
    LOCKSTEP_RETURN_IF_ERROR(remove_earlier_generations(*forming.store, generation.id));
  }
  const auto store = std::make_shared<PrefixStore>(forming.store, keys_of_generation(generation.id));
  LOCKSTEP_RETURN_IF_ERROR(meet(forming, *store, deadline));
  const auto guarded = std::make_shared<GuardedStore>(store);
  LossWatch watch;
  LOCKSTEP_RETURN_IF_ERROR(watch.start(forming, *store, *guarded));
  CommunicatorOptions options = forming.group;
  options.init_timeout = std::max(milliseconds(1), std::chrono::duration_cast<milliseconds>(deadline.remaining()));
  const int rank = generation.rank_of(forming.self);
  try {
    auto group = Communicator::create(guarded, rank, static_cast<int>(generation.members.size()), options);
    // If the leader has ended already, its loss ends the group, so an error here does not matter.
    if (forming.member_store == nullptr) (void)store->set(formed_key(rank), "", Deadline::after(kFormingAnswerTime));
    return group;
  } catch (const Error& error) {
    return error.status();
  }
}

}  // namespace lockstep::elastic
