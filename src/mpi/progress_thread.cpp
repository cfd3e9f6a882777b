#include "mpi/progress_thread.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "base/start_thread.h"

namespace lockstep::mpi {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// How the progress thread waits while something is pending: it polls without a pause, then yields, then
// sleeps. Training computes on the same cores.
constexpr microseconds kSpin{20};
constexpr microseconds kYield{1500};
constexpr microseconds kShortSleep{50};
constexpr microseconds kLongSleep{500};
constexpr milliseconds kLong{20};  // after which sleeps are long
// Nothing is pending here, but peers may wait for bytes that MPI still holds in this process.
constexpr milliseconds kIdleSleep{20};
constexpr milliseconds kCheckInterval{2};

}  // namespace

Status ProgressThread::start() {
  auto thread = start_thread("calls MPI", [this] { loop(); });
  if (!thread.ok()) return thread.status();
  thread_ = *std::move(thread);
  id_ = thread_.get_id();
  return {};
}

void ProgressThread::join() {
  if (thread_.joinable()) thread_.join();
}

bool ProgressThread::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return false;
    tasks_.push_back(std::move(task));
  }
  wake();
  return true;
}

void ProgressThread::add(std::shared_ptr<Channel> channel) {
  const std::lock_guard lock(mutex_);
  channels_.push_back(std::move(channel));
}

void ProgressThread::remove(const std::shared_ptr<Channel>& channel) {
  const std::lock_guard lock(mutex_);
  channels_.erase(std::remove(channels_.begin(), channels_.end(), channel), channels_.end());
}

bool ProgressThread::has_channels() const {
  const std::lock_guard lock(mutex_);
  return !channels_.empty();
}

std::vector<std::shared_ptr<Channel>> ProgressThread::channels() const {
  const std::lock_guard lock(mutex_);
  return channels_;
}

void ProgressThread::wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  changed_.notify_all();
}

void ProgressThread::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
}

void ProgressThread::loop() {
  for (;;) {
    bool worked = run_tasks();
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) break;
    }
    bool busy = false;
    serve_channels(&worked, &busy);
    pause(worked, busy);
  }
  run_tasks();
  const std::lock_guard lock(mutex_);
  tasks_.clear();
  stopped_ = true;
  changed_.notify_all();
}

bool ProgressThread::run_tasks() {
  std::vector<std::function<void()>> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
    woken_ = false;
  }
  for (const auto& task : tasks) task();
  return !tasks.empty();
}

void ProgressThread::serve_channels(bool* worked, bool* busy) {
  const auto now = Clock::now();
  const bool check = now - last_check_ >= kCheckInterval;
  if (check) last_check_ = now;
  for (const auto& channel : channels()) {
    *worked |= channel->advance();
    if (check) channel->check();
    *busy |= channel->busy();
  }
}

void ProgressThread::pause(bool worked, bool busy) {
  const auto now = Clock::now();
  if (worked) quiet_since_ = now;
  const auto quiet = now - quiet_since_;
  if (busy && quiet < kSpin) return;
  if (busy && quiet < kYield) {
    ::sched_yield();
    return;
  }
  const Clock::duration sleep = !busy ? kIdleSleep : Clock::duration(quiet < kLong ? kShortSleep : kLongSleep);
  {
    std::unique_lock lock(mutex_);
    const bool woken = changed_.wait_for(lock, sleep, [this] { return woken_ || stopping_; });
    if (woken) quiet_since_ = Clock::now();
    if (woken || stopping_) return;
  }
  if (!busy) idle_();
}

void ProgressThread::retire(const Status& reason) {
  const auto served = channels();
  for (const auto& channel : served) channel->fail(reason, true);
  if (!thread_.joinable()) return;  // it could not be started
  std::unique_lock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  if (!changed_.wait_for(lock, std::chrono::seconds(5), [this] { return stopped_; })) {
    log_warn("the progress thread of MPI did not stop within 5 s");
    return;
  }
  lock.unlock();
  // No thread serves them any more.
  for (const auto& channel : served) channel->advance();
}

}  // namespace lockstep::mpi
