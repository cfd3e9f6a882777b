#include "python/operation_queue.h"

#include "base/start_thread.h"

namespace lockstep::python {
namespace {

// The operations of one task: the last of them completes the work.
class Pending {
 public:
  explicit Pending(Task task) : task_(std::move(task)), left_(task_.operations.size()) {}

  const std::vector<Operation>& operations() const { return task_.operations; }

  void one_done(const Status& outcome) {
    {
      const std::lock_guard lock(mutex_);
      if (outcome_.ok()) outcome_ = outcome;
      if (--left_ > 0) return;
    }
    finish();
  }

 private:
  void finish() {
    if (outcome_.ok()) {
      try {
        for (const auto& step : task_.finally) step();
      } catch (const std::exception& error) {
        outcome_ = Status(StatusCode::internal, error.what());
      }
    }
    task_.work->complete(outcome_);
  }

  Task task_;
  std::mutex mutex_;
  std::size_t left_;  // guarded by mutex_
  Status outcome_;    // guarded by mutex_ until all are done: the first error
};

}  // namespace

OperationQueue::~OperationQueue() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void OperationQueue::issue(Task task) {
  const std::lock_guard lock(mutex_);  // held while submitting: the order of issue is that of this lock
  if (!in_sequence_ && !task.sequence) return submit(std::move(task));
  if (!thread_.joinable()) thread_ = value_or_throw(start_thread("runs sequences of operations", [this] { serve(); }));
  waiting_.push_back(std::move(task));
  in_sequence_ = true;
  changed_.notify_all();
}

// The first operation may be refused because its arguments are wrong; then no operation was issued. The others of a
// task have the same form.
void OperationQueue::submit(Task task) {
  if (task.operations.empty()) {
    task.work->complete(Status());
    return;
  }
  auto pending = std::make_shared<Pending>(std::move(task));
  std::size_t submitted = 0;
  try {
    for (const Operation& operation : pending->operations()) {
      const Work work = group_->submit(operation);
      ++submitted;
      work.then([pending](const Status& outcome) { pending->one_done(outcome); });
    }
  } catch (const Error& error) {
    if (submitted == 0) throw;
    for (; submitted < pending->operations().size(); ++submitted) pending->one_done(error.status());
  }
}

void OperationQueue::run(Task task) {
  const TorchWorkPointer work = task.work;
  try {
    if (!task.sequence) return submit(std::move(task));
    task.sequence(*group_);
    for (const auto& step : task.finally) step();
  } catch (const Error& error) {
    return work->complete(error.status());
  } catch (const std::exception& error) {
    return work->complete(Status(StatusCode::internal, error.what()));
  }
  work->complete(Status());
}

void OperationQueue::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    Task task = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    run(std::move(task));
    lock.lock();
    in_sequence_ = !waiting_.empty();
  }
}

}  // namespace lockstep::python
