// What is to be done at the end of a backward, for all models that it reached.
//
// Ranks may reach the models of one loss in different orders. They finish them in the order in which the models were
// made, which is the same on all ranks: each model's end waits for the other ranks, so other orders could wait for each
// other.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep::detail {

// Thread-safe.
class BackwardEnds {
 public:
  // Calls `end` when the backward that runs on this thread is over, on the thread that called it, after those with a
  // lower number. If the backward throws, or an `end` before this one, it calls `abandon` instead, which must not
  // throw. In hooks of autograd only.
  static void add(std::uint64_t number, std::function<void()> end, std::function<void()> abandon);

  BackwardEnds() = default;
  BackwardEnds(const BackwardEnds&) = delete;
  BackwardEnds& operator=(const BackwardEnds&) = delete;

 private:
  class End;
  void run();

  std::mutex mutex_;
  std::vector<std::pair<std::uint64_t, std::shared_ptr<End>>> ends_;  // guarded by mutex_
};

}  // namespace lockstep::detail
