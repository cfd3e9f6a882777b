#include "ddp/data_parallel/replica_threads.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "base/start_thread.h"
#include "lockstep/base/status.h"

namespace lockstep::detail {

namespace {

[[noreturn]] void rethrow(const std::exception_ptr& failure, std::size_t replica, std::size_t count, const char* what) {
  const std::string context = fmt::format("DataParallel: replica {} of {} failed in {}", replica, count, what);
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    throw Error(error.status().with_context(context));
  } catch (const c10::Error& error) {
    throw Error({StatusCode::invalid_argument, fmt::format("{}: {}", context, error.what_without_backtrace())});
  } catch (const std::exception& error) {
    throw Error({StatusCode::invalid_argument, fmt::format("{}: {}", context, error.what())});
  } catch (...) {
    throw Error({StatusCode::invalid_argument, context + " with an exception that is not a std::exception"});
  }
}

}  // namespace

ReplicaThreads::ReplicaThreads(std::size_t count, int threads_each) : pending_(count), failures_(count) {
  // LibTorch's number of threads belongs to the calling thread, but each call also changes what later threads
  // begin with: restore that when all have set theirs.
  const int before = at::get_num_threads();
  Status started;
  for (std::size_t i = 0; i < count && started.ok(); ++i) {
    auto thread = start_thread("computes a replica", [this, i, threads_each] { work(i, threads_each); });
    started = thread.status();
    if (started.ok()) threads_.push_back(*std::move(thread));
  }
  {
    std::unique_lock lock(mutex_);
    const std::size_t missing = count - threads_.size();
    changed_.wait(lock, [&] { return pending_ == missing; });
  }
  at::set_num_threads(before);
  if (started.ok()) return;
  stop();
  throw Error(started);
}

ReplicaThreads::~ReplicaThreads() { stop(); }

void ReplicaThreads::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReplicaThreads::run(std::size_t count, const char* what, const std::function<void(std::size_t)>& task) {
  std::lock_guard caller(caller_);
  std::unique_lock lock(mutex_);
  task_ = &task;
  count_ = pending_ = count;
  failures_.assign(threads_.size(), nullptr);
  ++round_;
  changed_.notify_all();
  changed_.wait(lock, [this] { return pending_ == 0; });
  for (std::size_t i = 0; i < count; ++i) {
    if (failures_[i]) rethrow(failures_[i], i, count, what);
  }
}

void ReplicaThreads::work(std::size_t index, int threads_each) {
  at::set_num_threads(threads_each);
  std::unique_lock lock(mutex_);
  std::size_t seen = round_;
  --pending_;
  changed_.notify_all();
  while (true) {
    changed_.wait(lock, [&] { return stop_ || round_ != seen; });
    if (stop_) return;
    seen = round_;
    if (index >= count_) continue;
    const auto* task = task_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      (*task)(index);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failures_[index] = std::move(failure);
    if (--pending_ == 0) changed_.notify_all();
  }
}

}  // namespace lockstep::detail
