// main() of every test program: the role in a child that the harness started, GoogleTest otherwise.
#include <gmock/gmock.h>

#include "support/process_set.h"

int main(int argc, char** argv) {
  if (const auto exit_code = lockstep::testing::run_role_of_child()) return *exit_code;
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
