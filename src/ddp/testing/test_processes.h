// Ranks of a test as processes that mpirun started, for backends that have no ranks as threads. Every process runs
// every test, in the same order, and has the same rank in each.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "ddp/testing/test_ranks.h"

namespace lockstep::testing {

// True for "mpi", "openmpi" and "mpich".
bool ranks_are_processes(const std::string& backend);

// Runs `body` in the first `size` processes, over a group of these; the others wait. Returns on all what each rank
// threw: the exception itself on the rank that threw it, its text elsewhere.
std::vector<std::exception_ptr> exceptions_of_processes(int size, const std::function<void(const Group&)>& body,
                                                        const std::string& backend);

// The bytes that process `owner` gives. All processes call it.
std::string bytes_of_process(const std::string& mine, int owner, const std::string& backend);

void barrier_of_processes(const std::string& backend);

}  // namespace lockstep::testing
