// One persistent thread per replica.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep::detail {

class ReplicaThreads {
 public:
  // `threads_each`: how many threads LibTorch's operators may use in each of them. Throws Error if they cannot be
  // started.
  ReplicaThreads(std::size_t count, int threads_each);
  // Not while run() is in progress.
  ~ReplicaThreads();
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  // Calls task(i) for i < count in thread i, and waits for all of them. If some failed, throws Error for
  // the first: "replica 2 of 4 failed in <what>: ...". Calls from several threads run one after the other.
  void run(std::size_t count, const char* what, const std::function<void(std::size_t)>& task);

 private:
  void work(std::size_t index, int threads_each);
  void stop();

  std::mutex caller_;  // one run() at a time
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  const std::function<void(std::size_t)>* task_ = nullptr;
  std::size_t round_ = 0;    // counts the calls of run()
  std::size_t count_ = 0;    // threads that take part in this round
  std::size_t pending_ = 0;  // threads that have not finished
  bool stop_ = false;
  std::vector<std::exception_ptr> failures_;

  std::vector<std::thread> threads_;
};

}  // namespace lockstep::detail
