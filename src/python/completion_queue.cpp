#include "python/completion_queue.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/start_thread.h"

namespace lockstep::python {

struct CompletionQueue::Shared {
  void serve() {
    std::unique_lock lock(mutex);
    while (true) {
      added.wait(lock, [this] { return closing || !tasks.empty(); });
      if (tasks.empty()) return;
      std::function<void()> task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      task();
      task = nullptr;  // frees tensors, without the mutex
      lock.lock();
    }
  }

  std::mutex mutex;
  std::condition_variable added;
  // Guarded by mutex.
  std::deque<std::function<void()>> tasks;
  bool started = false;
  bool closing = false;
};

CompletionQueue::CompletionQueue() : shared_(std::make_shared<Shared>()) {}

CompletionQueue::~CompletionQueue() {
  const std::lock_guard lock(shared_->mutex);
  shared_->closing = true;
  shared_->added.notify_one();
}

void CompletionQueue::post(std::function<void()> task) {
  {
    const std::lock_guard lock(shared_->mutex);
    if (!shared_->started) {
      auto thread = start_thread("completes futures", [shared = shared_] { shared->serve(); });
      shared_->started = thread.ok();
      if (thread.ok()) thread->detach();
    }
    if (shared_->started) {
      shared_->tasks.push_back(std::move(task));
      shared_->added.notify_one();
      return;
    }
  }
  task();  // there is no other thread for it
}

}  // namespace lockstep::python
