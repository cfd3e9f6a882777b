#include "group/collective_lane.h"

#include <utility>

namespace lockstep {
namespace {

Status closed_error() { return Status(StatusCode::closed, "this group has been destroyed"); }

Status run_on(GroupCore& core, IssuedCollective& issued, OperationTimer timer) {
  issued.call.counts = issued.counts;
  return core.run_collective(issued.call, timer);
}

}  // namespace

Status CollectiveLane::run(IssuedCollective&& issued) {
  {
    std::unique_lock lock(mutex_);
    if (closed_) return closed_error();
    issued.call.descriptor.sequence = ++sequence_;
    if (busy_ || !queue_.empty()) {
      auto work = enqueue(std::move(issued));
      lock.unlock();
      return work->wait(Deadline::at(Deadline::Clock::time_point::max()));
    }
    busy_ = true;
  }
  Status status = run_on(*core_, issued, OperationTimer(issued.timeout));
  bool somebody_waits = false;
  {
    const std::lock_guard lock(mutex_);
    busy_ = false;
    somebody_waits = !queue_.empty() || closed_;
  }
  if (somebody_waits) changed_.notify_all();
  return status;
}

Work CollectiveLane::submit(IssuedCollective&& issued) {
  const std::lock_guard lock(mutex_);
  if (closed_) {
    auto work = std::make_shared<detail::WorkState>();
    work->complete(closed_error());
    return Work(work);
  }
  issued.call.descriptor.sequence = ++sequence_;
  return Work(enqueue(std::move(issued)));
}

// With mutex_ held.
std::shared_ptr<detail::WorkState> CollectiveLane::enqueue(IssuedCollective&& issued) {
  auto work = std::make_shared<detail::WorkState>();
  OperationTimer timer(issued.timeout);
  timer.start();
  queue_.push_back({std::move(issued), timer, work});
  if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  changed_.notify_all();
  return work;
}

void CollectiveLane::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !busy_ && (!queue_.empty() || closed_); });
    if (queue_.empty()) return;
    Queued next = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    next.work->complete(run_on(*core_, next.issued, next.timer));
    lock.lock();
    busy_ = false;
    if (closed_) changed_.notify_all();
  }
}

void CollectiveLane::close() {
  std::thread thread;
  {
    std::unique_lock lock(mutex_);
    closed_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !busy_ && queue_.empty(); });
    thread = std::move(thread_);
  }
  if (thread.joinable()) thread.join();
}

}  // namespace lockstep
