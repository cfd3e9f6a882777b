// counting_rank.h as a program of its own, for launchers to start.
#include <cstdio>
#include <exception>

#include "elastic/counting_rank.h"

int main() {
  try {
    return lockstep::testing::run_counting_rank();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
