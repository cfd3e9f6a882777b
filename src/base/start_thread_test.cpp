#include "base/start_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/no_threads.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(StartThread, RunsTheFunction) {
  bool ran = false;
  auto thread = start_thread("tests", [&] { ran = true; });
  ASSERT_TRUE(thread.ok());
  thread->join();
  EXPECT_TRUE(ran);
}

TEST(StartThread, IsAnErrorIfTheSystemRefuses) {
  const testing::NoThreads none;
  const auto thread = start_thread("answers ranks", [] {});
  EXPECT_EQ(thread.status().code(), StatusCode::resource_exhausted);
  EXPECT_THAT(thread.status().message(), StartsWith("cannot start the thread that answers ranks: "));
  EXPECT_THAT(thread.status().message(), HasSubstr("ulimit -u"));
}

}  // namespace
}  // namespace lockstep
