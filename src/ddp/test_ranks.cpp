#include "ddp/test_ranks.h"

#include <ATen/Parallel.h>

#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "lockstep/group/process_group.h"

namespace lockstep::testing {

namespace {

// One for each rank, to be used by its thread.
std::vector<Group> groups_of_threads(int size) {
  std::vector<Group> groups;
  if (test_backend() == "lockstep") {
    for (auto& group : ProcessGroup::create_threads(size)) groups.push_back(make_tensor_group(std::move(group)));
    return groups;
  }
  throw std::invalid_argument("LOCKSTEP_TEST_BACKEND=" + test_backend() + ": these tests do not know it");
}

}  // namespace

const std::string& test_backend() {
  static const std::string backend = [] {
    const char* value = std::getenv("LOCKSTEP_TEST_BACKEND");
    return std::string(value != nullptr && *value != '\0' ? value : "lockstep");
  }();
  return backend;
}

std::vector<std::exception_ptr> exceptions_of_ranks(int size, const std::function<void(const Group&)>& body) {
  at::set_num_threads(1);
  std::vector<Group> groups = groups_of_threads(size);
  std::vector<std::exception_ptr> exceptions(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < exceptions.size(); ++rank) {
    threads.emplace_back([&, group = std::move(groups[rank]), rank]() mutable {
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

std::vector<std::string> errors_of_ranks(int size, const std::function<void(const Group&)>& body) {
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

void run_ranks(int size, const std::function<void(const Group&)>& body) {
  for (const std::exception_ptr& exception : exceptions_of_ranks(size, body)) {
    if (exception) std::rethrow_exception(exception);
  }
}

}  // namespace lockstep::testing
