// A case as C++ for a test: a module, and a training loop with DDP and by hand.
//
// The text goes into a file of ddp_tests that includes "ddp/model_fuzz/by_hand.h". It computes the same numbers as the
// fuzzer; ranks are threads there. join() is printed without the program by hand, which would need all of the fuzzer.
#pragma once

#include <string>

#include "ddp/model_fuzz/case.h"

namespace lockstep::fuzz {

std::string print_cpp(const Case& item);

}  // namespace lockstep::fuzz
