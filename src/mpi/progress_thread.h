// The one thread that calls MPI: runs tasks, serves channels, and polls MPI now and then while nothing is pending.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"
#include "mpi/channel.h"

namespace lockstep::mpi {

// Thread-safe, except start() and join().
class ProgressThread {
 public:
  // `idle` is called on the thread while nothing is pending here: peers may wait for bytes that MPI still holds.
  explicit ProgressThread(std::function<void()> idle) : idle_(std::move(idle)) {}
  // Waits for the thread, which retire() must have stopped.
  ~ProgressThread() { join(); }
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  [[nodiscard]] Status start();
  void join();
  bool is_current() const { return std::this_thread::get_id() == id_; }

  // Runs `task` on the thread, soon. False if the thread stops. A task that was taken but not run is destroyed.
  [[nodiscard]] bool post(std::function<void()> task);
  // From now on the thread serves the channel; after remove() it holds no reference to it.
  void add(std::shared_ptr<Channel> channel);
  void remove(const std::shared_ptr<Channel>& channel);
  bool has_channels() const;
  void wake();

  // Fails all channels with `reason` and stops the thread. Blocks until it makes no more calls, at most 5 s.
  void retire(const Status& reason);
  // The thread ends after the present task. For a task that finalises MPI.
  void stop();

 private:
  using Clock = Deadline::Clock;

  void loop();
  bool run_tasks();
  void serve_channels(bool* worked, bool* busy);
  void pause(bool worked, bool busy);
  std::vector<std::shared_ptr<Channel>> channels() const;

  const std::function<void()> idle_;
  std::thread thread_;
  std::atomic<std::thread::id> id_{};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;                              // guarded by mutex_
  bool stopping_ = false;                           // guarded by mutex_
  bool stopped_ = false;                            // guarded by mutex_: makes no more calls of MPI
  std::vector<std::function<void()>> tasks_;        // guarded by mutex_
  std::vector<std::shared_ptr<Channel>> channels_;  // guarded by mutex_

  // Owned by the thread.
  Clock::time_point quiet_since_{};
  Clock::time_point last_check_{};
};

}  // namespace lockstep::mpi
