#include "ddp/testing/test_processes.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "ddp/backends/registry.h"

namespace lockstep::testing {

namespace {

constexpr std::int64_t kTextBytes = 2048;

// All processes of the job. Never destroyed: MPI ends when the process exits.
const Group& world(const std::string& backend = {}) {
  static const Group* const group = new Group(detail::make_group({.backend = backend}));
  return *group;
}

// Every process' text, in order.
std::vector<std::string> exchange(const std::string& mine) {
  at::Tensor input = at::zeros({kTextBytes}, at::kByte);
  std::memcpy(input.data_ptr(), mine.data(), std::min<std::size_t>(mine.size(), kTextBytes - 1));
  at::Tensor all = at::zeros({world()->size(), kTextBytes}, at::kByte);
  world()->all_gather(input, all, {}).wait();
  std::vector<std::string> texts;
  for (int rank = 0; rank < world()->size(); ++rank) texts.emplace_back(static_cast<const char*>(all[rank].data_ptr()));
  return texts;
}

}  // namespace

bool ranks_are_processes(const std::string& backend) {
  return backend == "mpi" || backend == "openmpi" || backend == "mpich";
}

std::vector<std::exception_ptr> exceptions_of_processes(int size, const std::function<void(const Group&)>& body,
                                                        const std::string& backend) {
  at::set_num_threads(1);
  if (size > world(backend)->size()) {
    throw std::runtime_error("this test needs " + std::to_string(size) + " processes; start more with mpirun -n");
  }
  const int rank = world()->rank();
  std::exception_ptr thrown;
  std::string text;
  if (rank < size) {
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    Group group;
    try {
      group = world()->new_group(ranks, "test");
      body(group);
    } catch (const std::exception& error) {
      thrown = std::current_exception();
      text = error.what();
      if (group) group->abort(text);
    }
  }
  const std::vector<std::string> texts = exchange(text);
  std::vector<std::exception_ptr> exceptions;
  for (int other = 0; other < size; ++other) {
    const std::string& what = texts[static_cast<std::size_t>(other)];
    if (other == rank) {
      exceptions.push_back(thrown);
    } else {
      exceptions.push_back(what.empty() ? nullptr : std::make_exception_ptr(std::runtime_error(what)));
    }
  }
  return exceptions;
}

void barrier_of_processes(const std::string& backend) { world(backend)->barrier({}).wait(); }

std::string bytes_of_process(const std::string& mine, int owner, const std::string& backend) {
  at::Tensor size = at::full({1}, static_cast<std::int64_t>(mine.size()), at::kLong);
  world(backend)->broadcast(size, owner, {}).wait();
  at::Tensor bytes = at::empty({size.item<std::int64_t>()}, at::kByte);
  if (world()->rank() == owner) std::memcpy(bytes.data_ptr(), mine.data(), mine.size());
  world()->broadcast(bytes, owner, {}).wait();
  return {static_cast<const char*>(bytes.data_ptr()), static_cast<std::size_t>(bytes.numel())};
}

}  // namespace lockstep::testing
