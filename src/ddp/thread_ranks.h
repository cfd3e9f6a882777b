// Tests with several ranks as threads of one process.
#pragma once

#include <torch/torch.h>

#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "lockstep/ddp/init.h"
#include "lockstep/group/process_group.h"

namespace lockstep::testing {

// Runs `body` once for each of `size` ranks, concurrently; rethrows the exception of the lowest rank that
// had one.
inline void run_thread_ranks(int size, const std::function<void(const std::shared_ptr<TensorGroup>&)>& body) {
  at::set_num_threads(1);
  std::vector<std::shared_ptr<ProcessGroup>> groups = ProcessGroup::create_threads(size);
  std::vector<std::exception_ptr> errors(groups.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < groups.size(); ++r) {
      threads.emplace_back([&body, &error = errors[r], group = make_tensor_group(std::move(groups[r]))] {
        at::set_num_threads(1);
        try {
          body(group);
        } catch (const std::exception& failure) {
          error = std::current_exception();
          group->abort(failure.what());
        }
      });
    }
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace lockstep::testing
