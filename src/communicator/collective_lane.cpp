#include "communicator/collective_lane.h"

#include <utility>

#include "base/start_thread.h"

namespace lockstep {
namespace {

Status closed_error() { return Status(StatusCode::closed, "this group has been destroyed"); }

Status run_on(GroupCore& core, IssuedCollective& issued, OperationTimer timer, std::uint64_t issued_at = 0) {
  issued.call.counts = issued.counts;
  return core.run_collective(issued.call, timer, issued_at);
}

}  // namespace

Status CollectiveLane::run(IssuedCollective&& issued) {
  std::uint64_t state = state_.load(std::memory_order_relaxed);  // the exchange below checks it
  // Acquire: pairs with the release of the turn by the thread that ran before.
  if ((state & (kBusy | kAttention)) == 0 &&
      state_.compare_exchange_strong(state, (state + kOne) | kBusy, std::memory_order_acquire)) {
    issued.call.descriptor.sequence = state / kOne + 1;
    Status status = run_on(*core_, issued, OperationTimer(issued.timeout));
    if ((state_.fetch_and(~kBusy, std::memory_order_release) & kAttention) != 0) {
      const std::lock_guard lock(mutex_);
      changed_.notify_all();
    }
    return status;
  }
  std::shared_ptr<detail::WorkState> work;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return closed_error();
    work = enqueue(std::move(issued));
  }
  return work->wait(Deadline::at(Deadline::Clock::time_point::max()));
}

Work CollectiveLane::submit(IssuedCollective&& issued) {
  const std::lock_guard lock(mutex_);
  if (closed_) {
    auto work = std::make_shared<detail::WorkState>();
    work->complete(closed_error());
    return Work(work);
  }
  return Work(enqueue(std::move(issued)));
}

std::shared_ptr<detail::WorkState> CollectiveLane::enqueue(IssuedCollective&& issued) {
  auto work = std::make_shared<detail::WorkState>();
  if (!thread_.joinable()) {
    auto thread = start_thread("runs collectives", [this] { serve(); });
    if (!thread.ok()) {
      // The other ranks would wait for this operation.
      core_->fail(thread.status());
      work->complete(thread.status());
      return work;
    }
    thread_ = *std::move(thread);
  }
  std::uint64_t state = state_.load();
  while (!state_.compare_exchange_weak(state, (state + kOne) | kAttention)) {
  }
  issued.call.descriptor.sequence = state / kOne + 1;
  OperationTimer timer(issued.timeout);
  timer.start();
  queue_.push_back({std::move(issued), timer, record::now_ticks(), work});
  changed_.notify_all();
  return work;
}

bool CollectiveLane::take_turn() {
  std::uint64_t state = state_.load();
  while ((state & kBusy) == 0) {
    if (state_.compare_exchange_weak(state, state | kBusy)) return true;
  }
  return false;
}

bool CollectiveLane::idle() const { return (state_.load() & kBusy) == 0 && queue_.empty(); }

void CollectiveLane::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return queue_.empty() ? closed_ : take_turn(); });
    if (queue_.empty()) return;
    Queued next = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    next.work->complete(run_on(*core_, next.issued, next.timer, next.issued_at));
    lock.lock();
    const bool more = closed_ || !queue_.empty();
    state_.fetch_and(more ? ~kBusy : ~(kBusy | kAttention));
    if (closed_) changed_.notify_all();
  }
}

void CollectiveLane::close() {
  std::thread thread;
  {
    std::unique_lock lock(mutex_);
    closed_ = true;
    state_.fetch_or(kAttention);
    changed_.notify_all();
    changed_.wait(lock, [this] { return idle(); });
    thread = std::move(thread_);
  }
  if (thread.joinable()) thread.join();
}

}  // namespace lockstep
