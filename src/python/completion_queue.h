// A thread that completes futures, one after the other.
#pragma once

#include <functional>
#include <memory>

namespace lockstep::python {

// Callbacks of a future run on the thread that completes it. They may take long or wait for the GIL, so that thread is
// none of the engine's.
class CompletionQueue {
 public:
  CompletionQueue();
  // Does not wait: the thread ends after the tasks that were posted. It may be waiting for the GIL, and with it for the
  // thread that runs this destructor.
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  // Runs `task` after those that were posted before; here and now if the thread cannot be started. It must not throw.
  void post(std::function<void()> task);

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace lockstep::python
