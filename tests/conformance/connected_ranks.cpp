#include "conformance/connected_ranks.h"

#include <gtest/gtest.h>
#include <lockstep/store/stores.h>

#include <exception>
#include <thread>

#include "communicator/communicator_impl.h"
#include "rendezvous/rendezvous.h"

namespace lockstep::conformance {
namespace {

std::string host_of(Connection connection, int rank, int size) {
  switch (connection) {
    case Connection::tcp: return "host" + std::to_string(rank);
    case Connection::mixed: return rank < (size + 1) / 2 ? "first" : "second";
    case Connection::interleaved: return rank % 2 == 0 ? "first" : "second";
    default: return "";
  }
}

// As Communicator::create over a store, but the caller decides which host a rank is on.
std::shared_ptr<Communicator> join(const std::shared_ptr<Store>& store, int rank, int size, const std::string& host,
                                   const CommunicatorOptions& options) {
  const MeshFactory factory = [store, host](const std::string& scope, int r, int n, Deadline deadline) {
    return connect_mesh(MeetingPoint{.store = store, .rank = r, .world_size = n}, Secret(),
                        MeshOptions{.scope = scope, .host_id = host}, deadline);
  };
  return Communicator::Impl::make(factory, options.name, rank, size, options);
}

}  // namespace

std::string to_string(Connection connection) {
  switch (connection) {
    case Connection::threads: return "threads";
    case Connection::shm: return "shm";
    case Connection::tcp: return "tcp";
    case Connection::mixed: return "mixed";
    case Connection::interleaved: return "interleaved";
  }
  return "unknown";
}

std::vector<std::shared_ptr<Communicator>> connect_ranks(Connection connection, int size,
                                                         const CommunicatorOptions& options) {
  if (connection == Connection::threads) return Communicator::create_threads(size, options);
  const auto store = make_memory_store();
  std::vector<std::shared_ptr<Communicator>> groups(static_cast<std::size_t>(size));
  std::vector<std::exception_ptr> errors(groups.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        groups[static_cast<std::size_t>(rank)] = join(store, rank, size, host_of(connection, rank, size), options);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return groups;
}

void on_all_ranks(const std::vector<std::shared_ptr<Communicator>>& groups,
                  const std::function<void(Communicator&)>& body) {
  std::vector<std::thread> threads;
  for (const auto& group : groups) {
    threads.emplace_back([&body, group] {
      try {
        body(*group);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << group->rank() << ": " << error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace lockstep::conformance
