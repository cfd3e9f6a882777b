// Ranks as threads of a test: each runs the same function with a group of its own.
#pragma once

#include <ATen/Parallel.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/ddp/init.h"
#include "lockstep/group/process_group.h"

namespace lockstep::testing {

using Group = std::shared_ptr<TensorGroup>;

// What each rank threw ("" if nothing), in rank order.
inline std::vector<std::string> errors_of_ranks(int size, const std::function<void(const Group&)>& body,
                                                const GroupOptions& options = {}) {
  at::set_num_threads(1);
  auto engine_groups = ProcessGroup::create_threads(size, options);
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    threads.emplace_back([&, group = make_tensor_group(std::move(engine_groups[rank])), rank]() mutable {
      try {
        body(group);
      } catch (const std::exception& error) {
        errors[rank] = error.what();
        group->abort(error.what());  // nobody waits for this rank
      }
      group.reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// Throws what the first failing rank threw.
inline void run_ranks(int size, const std::function<void(const Group&)>& body) {
  const std::vector<std::string> errors = errors_of_ranks(size, body);
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    if (!errors[rank].empty()) throw std::runtime_error("rank " + std::to_string(rank) + ": " + errors[rank]);
  }
}

}  // namespace lockstep::testing
