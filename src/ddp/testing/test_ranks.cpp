#include "ddp/testing/test_ranks.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>

#include "ddp/backends/registry.h"
#include "ddp/testing/test_processes.h"
#include "lockstep/communicator/communicator.h"
#include "store/memory_store.h"

namespace lockstep::testing {

namespace {

// Every test starts with the same random numbers: where ranks are processes, each of them makes the test's inputs, and
// an earlier test may have used more numbers on one rank than on another.
class SeedEachTest final : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override { torch::manual_seed(1); }
};
[[maybe_unused]] const bool seeds_each_test = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new SeedEachTest);  // which owns it
  return true;
}();

// Makes the group of one rank, on that rank's thread.
using MakeGroup = std::function<Group(std::size_t rank)>;

MakeGroup groups_of_threads(int size, const std::string& backend) {
  // Each rank takes its own out, so that it ends with the rank.
  auto engine_groups = std::make_shared<std::vector<std::shared_ptr<Communicator>>>(Communicator::create_threads(size));
  if (backend == "lockstep") {
    return [engine_groups](std::size_t rank) { return make_process_group(std::move((*engine_groups)[rank])); };
  }
  return [engine_groups, backend, store = std::make_shared<MemoryStore>()](std::size_t rank) {
    detail::WatchGroup watch{std::move((*engine_groups)[rank]), store, ""};
    return detail::make_group_on(detail::GroupRequest({}, backend, std::move(watch)));
  };
}

}  // namespace

const std::string& test_backend() {
  static const std::string backend = [] {
    const char* value = std::getenv("LOCKSTEP_TEST_BACKEND");
    return std::string(value != nullptr && *value != '\0' ? value : "lockstep");
  }();
  return backend;
}

std::vector<std::exception_ptr> exceptions_of_ranks(int size, const std::function<void(const Group&)>& body,
                                                    const std::string& backend) {
  if (ranks_are_processes(backend)) return exceptions_of_processes(size, body, backend);
  at::set_num_threads(1);
  const MakeGroup make_group = groups_of_threads(size, backend);
  std::vector<std::exception_ptr> exceptions(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < exceptions.size(); ++rank) {
    threads.emplace_back([&exceptions, &body, &make_group, rank] {
      Group group;
      try {
        group = make_group(rank);
        body(group);
      } catch (const std::exception& error) {
        exceptions[rank] = std::current_exception();
        if (group) group->abort(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return exceptions;
}

std::vector<std::string> errors_of_ranks(int size, const std::function<void(const Group&)>& body,
                                         const std::string& backend) {
  std::vector<std::string> texts;
  for (const std::exception_ptr& exception : exceptions_of_ranks(size, body, backend)) {
    texts.emplace_back();
    try {
      if (exception) std::rethrow_exception(exception);
    } catch (const std::exception& error) {
      texts.back() = error.what();
    }
  }
  return texts;
}

void run_ranks(int size, const std::function<void(const Group&)>& body, const std::string& backend) {
  for (const std::exception_ptr& exception : exceptions_of_ranks(size, body, backend)) {
    if (exception) std::rethrow_exception(exception);
  }
}

std::string shared(const std::string& value, int owner) {
  return ranks_are_processes(test_backend()) ? bytes_of_process(value, owner, test_backend()) : value;
}

void wait_for_all_processes() {
  if (ranks_are_processes(test_backend())) barrier_of_processes(test_backend());
}

double shared(double value, int owner) {
  const std::string bytes = shared(std::string(reinterpret_cast<const char*>(&value), sizeof value), owner);
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::vector<at::Tensor> shared(const std::vector<at::Tensor>& tensors, int owner) {
  if (!ranks_are_processes(test_backend())) return tensors;
  std::ostringstream written;
  if (std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) { return tensor.defined(); })) {
    torch::save(tensors, written);
  }
  std::istringstream bytes(shared(written.str(), owner));
  std::vector<at::Tensor> result;
  torch::load(result, bytes);
  return result;
}

}  // namespace lockstep::testing
