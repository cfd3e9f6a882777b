// Issues a group's collectives in the order of the program, including those that consist of several dependent steps.
//
// Most operations of c10d are one operation of the engine, or several whose arguments are known at once: they are
// submitted to the engine immediately, which runs them in order. Some are a sequence, in which a step needs the result
// of the one before (an all_to_all whose ranks first tell each other the sizes). Such a sequence runs on the queue's
// own thread, and every collective that the program issues meanwhile waits here for its end: all ranks issue the same
// operations in the same order.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/communicator/communicator.h"
#include "python/torch_work.h"

namespace lockstep::python {

using TorchWorkPointer = c10::intrusive_ptr<TorchWork>;

// What an operation of c10d does.
struct Task {
  TorchWorkPointer work;
  // Submitted one after the other. Their buffers belong to `tensors`.
  std::vector<Operation> operations = {};
  // Instead of operations: blocks, throws Error, may call any blocking function of the group.
  std::function<void(Communicator&)> sequence = {};
  // Called when all succeeded, before the work is complete, on the thread that completes it: copies results back.
  std::vector<std::function<void()>> finally = {};
  // Kept until the work is complete.
  std::vector<at::Tensor> tensors = {};
  std::vector<std::size_t> counts = {};
};

// Thread-safe.
class OperationQueue {
 public:
  explicit OperationQueue(std::shared_ptr<Communicator> group) : group_(std::move(group)) {}
  // Completes what was issued, within its deadlines.
  ~OperationQueue();

  // A collective. Does not block. Arguments that the engine refuses: throws Error, or, if a sequence is running,
  // completes the work with the error.
  void issue(Task task);
  // A message, which is not ordered with respect to collectives.
  void issue_message(Task task) { submit(std::move(task)); }

 private:
  void submit(Task task);
  void run(Task task);
  void serve();

  const std::shared_ptr<Communicator> group_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::deque<Task> waiting_;
  bool in_sequence_ = false;  // the thread has tasks, or works on one
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace lockstep::python
