// Ranks as threads of the test, connected in each way that the engine supports.
#pragma once

#include <lockstep/communicator/communicator.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::conformance {

enum class Connection {
  threads,      // Communicator::create_threads: one address space
  shm,          // memfds and Unix sockets, as between processes of one host
  tcp,          // every rank on a host of its own
  mixed,        // two hosts, the first ranks on the first
  interleaved,  // two hosts, even ranks on the first
};
std::string to_string(Connection connection);

// A group of `size` ranks, to be driven by threads of this process. Throws.
std::vector<std::shared_ptr<Communicator>> connect_ranks(Connection connection, int size,
                                                         const CommunicatorOptions& options);

// Runs `body` for every rank at the same time, each on a thread of its own. An exception that leaves
// it fails the test and names the rank.
void on_all_ranks(const std::vector<std::shared_ptr<Communicator>>& groups,
                  const std::function<void(Communicator&)>& body);

}  // namespace lockstep::conformance
