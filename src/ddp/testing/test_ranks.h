// Ranks of a test: each runs the same function with its own group object. LOCKSTEP_TEST_BACKEND chooses the backend
// (unset: lockstep), so that one suite tests all backends.
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

// Runs `body` for every rank, concurrently; returns what each threw, or null. A rank that throws ends the group, so
// that no rank waits for it. Ranks are threads.
std::vector<std::exception_ptr> exceptions_of_ranks(int size, const std::function<void(const Group&)>& body,
                                                    const std::string& backend = test_backend());

// The texts of what each rank threw ("" if nothing), in rank order.
std::vector<std::string> errors_of_ranks(int size, const std::function<void(const Group&)>& body,
                                         const std::string& backend = test_backend());

// Throws what the lowest failing rank threw.
void run_ranks(int size, const std::function<void(const Group&)>& body, const std::string& backend = test_backend());

// The value that rank `owner` left in a shared variable, after the ranks have ended. Threads share the variable; if
// ranks are processes, each has its own, and this sends the owner's to all. Called by all, outside of the ranks.
std::string shared(const std::string& value, int owner);
double shared(double value, int owner);
std::vector<at::Tensor> shared(const std::vector<at::Tensor>& tensors, int owner);
// If ranks are processes: returns when all have called it. Outside of the ranks.
void wait_for_all_processes();

}  // namespace lockstep::testing
