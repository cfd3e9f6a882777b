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

// Runs `body` for every rank, concurrently; what each threw, or null. A rank that throws ends the group, so that
// nobody waits for it.
inline std::vector<std::exception_ptr> exceptions_of_ranks(int size, const std::function<void(const Group&)>& body) {
  at::set_num_threads(1);
  auto engine_groups = ProcessGroup::create_threads(size);
  std::vector<std::exception_ptr> exceptions(engine_groups.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < exceptions.size(); ++rank) {
    threads.emplace_back([&, group = make_tensor_group(std::move(engine_groups[rank])), rank]() mutable {
      try {
        body(group);
      } catch (const std::exception& error) {
        exceptions[rank] = std::current_exception();
        group->abort(error.what());
      }
      group.reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return exceptions;
}

// The texts of what each rank threw ("" if nothing), in rank order.
inline std::vector<std::string> errors_of_ranks(int size, const std::function<void(const Group&)>& body) {
  std::vector<std::string> texts;
  for (const std::exception_ptr& exception : exceptions_of_ranks(size, body)) {
    texts.emplace_back();
    try {
      if (exception) std::rethrow_exception(exception);
    } catch (const std::exception& error) {
      texts.back() = error.what();
    }
  }
  return texts;
}

// Throws what the lowest failing rank threw.
inline void run_ranks(int size, const std::function<void(const Group&)>& body) {
  for (const std::exception_ptr& exception : exceptions_of_ranks(size, body)) {
    if (exception) std::rethrow_exception(exception);
  }
}

}  // namespace lockstep::testing
