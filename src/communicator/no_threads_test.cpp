// A process that has reached its limit of threads: errors that say so, on all ranks, and no process that ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/communicator/communicator.h>
#include <functional>

#include <chrono>
#include <thread>
#include <vector>

#include "store/tcp/tcp_store_server.h"
#include "support/no_threads.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using lockstep::testing::NoThreads;
using ::testing::HasSubstr;

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string message_of(const Work& work) {
  return error_of([&] { work.wait(); });
}

TEST(NoThread, ForRanksOfThisProcessIsAnError) {
  const NoThreads none;
  try {
    Communicator::create_threads(3, {.init_timeout = 60s});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status().code(), StatusCode::resource_exhausted);
    EXPECT_THAT(error.what(), HasSubstr("cannot start the thread that creates rank 0 of 3"));
  }
}

TEST(NoThread, ForAsynchronousCollectivesEndsTheGroup) {
  auto groups = Communicator::create_threads(2, {.timeout = 60s});
  std::vector<float> data(8, 1.0F), other(8, 1.0F);
  Work failed;
  {
    const NoThreads none;
    failed =
        groups[0]->submit({.kind = OperationKind::all_reduce, .input = std::span(data), .output = std::span(data)});
  }
  EXPECT_THAT(message_of(failed), HasSubstr("cannot start the thread that runs collectives"));
  EXPECT_THAT(error_of([&] { groups[1]->all_reduce(std::span(other)); }),
              HasSubstr("cannot start the thread that runs collectives"))
      << "it does not wait for its deadline";
  groups.clear();  // does not wait for an operation that no thread runs
}

TEST(NoThread, ForMessagesEndsTheGroup) {
  auto groups = Communicator::create_threads(2, {.timeout = 60s});
  std::vector<float> data(8, 1.0F);
  Work failed;
  {
    const NoThreads none;
    failed = groups[0]->submit({.kind = OperationKind::recv, .output = std::span(data), .peer = 1});
  }
  EXPECT_THAT(message_of(failed), HasSubstr("cannot start the thread that sends and receives messages"));
  EXPECT_THAT(error_of([&] { groups[1]->all_reduce(std::span(data)); }),
              HasSubstr("cannot start the thread that sends and receives messages"));
}

TEST(NoThread, ForAStoreIsAnError) {
  const NoThreads none;
  const auto server = TcpStoreServer::start({.host = "127.0.0.1"});
  EXPECT_EQ(server.status().code(), StatusCode::resource_exhausted);
  EXPECT_THAT(server.status().message(), HasSubstr("cannot start the store"));
}

}  // namespace
}  // namespace lockstep
