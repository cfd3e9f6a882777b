// Ranks of a test: each runs the same function with a group of its own. LOCKSTEP_TEST_BACKEND says on which
// backend (unset: lockstep), so that one suite serves all.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/ddp/init.h"

namespace lockstep::testing {

using Group = std::shared_ptr<ProcessGroup>;

// "lockstep", or what LOCKSTEP_TEST_BACKEND names.
const std::string& test_backend();

// Runs `body` for every rank, concurrently; what each threw, or null. A rank that throws ends the group, so that
// nobody waits for it. Ranks are threads.
std::vector<std::exception_ptr> exceptions_of_ranks(int size, const std::function<void(const Group&)>& body,
                                                    const std::string& backend = test_backend());

// The texts of what each rank threw ("" if nothing), in rank order.
std::vector<std::string> errors_of_ranks(int size, const std::function<void(const Group&)>& body,
                                         const std::string& backend = test_backend());

// Throws what the lowest failing rank threw.
void run_ranks(int size, const std::function<void(const Group&)>& body, const std::string& backend = test_backend());

// What rank `owner` left in a common variable, after its ranks have ended. Threads have it in common; where ranks are
// processes, each has its own, and this gives the owner's to all. Called by all, outside of the ranks.
std::string shared(const std::string& value, int owner);
double shared(double value, int owner);
std::vector<at::Tensor> shared(const std::vector<at::Tensor>& tensors, int owner);
// Where ranks are processes: returns when all have called it. Outside of the ranks.
void meet();

}  // namespace lockstep::testing
