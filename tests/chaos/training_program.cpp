// One rank of the job that the chaos test disturbs.
#include <cstdio>

#include "elastic/logged_training.h"

int main() {
  try {
    return lockstep::testing::run_logged_training(lockstep::testing::TrainingPlan::from_environment());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
