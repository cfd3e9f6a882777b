#include "elastic/forming.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "elastic/guarded_store.h"
#include "lockstep/store/prefix_store.h"

namespace lockstep::elastic {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookInterval{25};
// The end of forming waits for the end of such a look.
constexpr milliseconds kWatchInterval{10};
constexpr milliseconds kFormingAnswerTime{1000};
constexpr const char* kGo = "go";
constexpr const char* kLost = "lost";

// Set by a member for whom the group stands: it may leave the door now, which is no loss.
std::string formed_key(int rank) { return fmt::format("formed/{}", rank); }

// Who of the visitors that belong to the generation has gone before the group stood for him; empty: nobody.
std::string lost_visitor(const Forming& forming, Store& store) {
  for (const RankStore::Visitor& visitor : forming.visitors) {
    const auto connected = forming.door->is_connected(visitor);
    if (!connected.ok() || *connected) continue;
    const std::string formed = formed_key(forming.answer.generation.rank_of(visitor.registration.member.id));
    if (const auto stands = store.check(std::span(&formed, 1), Deadline::after(kFormingAnswerTime));
        stands.ok() && *stands)
      continue;
    return fmt::format("{} was lost while the group formed", visitor.registration.member.describe());
  }
  return "";
}

// Ok once all members have come, on all of them.
Status meet(const Forming& forming, Store& store, Deadline deadline) {
  const Generation& generation = forming.answer.generation;
  std::vector<std::string> joined;
  for (std::size_t rank = 0; rank < generation.members.size(); ++rank) joined.push_back(fmt::format("joined/{}", rank));
  LOCKSTEP_RETURN_IF_ERROR(store.set(joined[static_cast<std::size_t>(generation.rank_of(forming.self))], "", deadline));
  if (forming.door == nullptr) {
    const auto go = store.get(kGo, deadline);
    if (!go.ok()) return go.status();
    return go->empty() ? Status() : Status(StatusCode::peer_lost, *go);
  }
  while (true) {
    const Status all = store.wait(joined, Deadline::after(kLookInterval));
    if (all.ok()) return store.set(kGo, "", deadline);
    if (all.code() != StatusCode::timed_out) return all;
    std::string lost = lost_visitor(forming, store);
    if (lost.empty() && deadline.expired()) lost = "not all members came in time";
    if (lost.empty()) continue;
    LOCKSTEP_RETURN_IF_ERROR(store.set(kGo, lost, Deadline::after(kFormingAnswerTime)));
    return Status(StatusCode::peer_lost, lost);
  }
}

// Closes `guarded` when a member is lost: the leader sees it at its door and tells the others.
class LossWatch {
 public:
  LossWatch(const Forming& forming, Store& store, GuardedStore& guarded)
      : thread_([&forming, &store, &guarded, this] { run(forming, store, guarded); }) {}
  ~LossWatch() {
    done_ = true;
    thread_.join();
  }

 private:
  void run(const Forming& forming, Store& store, GuardedStore& guarded) {
    while (!done_) {
      if (forming.door != nullptr) {
        if (const std::string lost = lost_visitor(forming, store); !lost.empty()) {
          (void)store.set(kLost, lost, Deadline::after(kFormingAnswerTime));
        }
      }
      const auto lost = store.get(kLost, Deadline::after(kWatchInterval));
      if (!lost.ok() && lost.status().code() == StatusCode::timed_out) continue;
      guarded.close(lost.ok() ? *lost : lost.status().message());
      return;
    }
  }

  std::atomic<bool> done_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace

Result<std::shared_ptr<Communicator>> form_group(const Forming& forming, Deadline deadline) {
  const Generation& generation = forming.answer.generation;
  const auto store = std::make_shared<PrefixStore>(forming.store, fmt::format("group/{}/", generation.id));
  LOCKSTEP_RETURN_IF_ERROR(meet(forming, *store, deadline));
  const auto guarded = std::make_shared<GuardedStore>(store);
  const LossWatch watch(forming, *store, *guarded);
  CommunicatorOptions options = forming.group;
  options.init_timeout = std::max(milliseconds(1), std::chrono::duration_cast<milliseconds>(deadline.remaining()));
  const int rank = generation.rank_of(forming.self);
  try {
    auto group = Communicator::create(guarded, rank, static_cast<int>(generation.members.size()), options);
    // Where the leader is gone already, its loss ends the group by itself.
    if (forming.door == nullptr) (void)store->set(formed_key(rank), "", Deadline::after(kFormingAnswerTime));
    return group;
  } catch (const Error& error) {
    return error.status();
  }
}

}  // namespace lockstep::elastic
