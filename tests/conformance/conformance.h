// The suite that every way to connect ranks must pass. The tests are in *_test.cpp; quick.cpp and
// long.cpp define for which ranks they run.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <tuple>
#include <vector>

#include "conformance/call.h"
#include "conformance/connected_ranks.h"

namespace lockstep::conformance {

class Conformance : public ::testing::TestWithParam<std::tuple<Connection, int>> {
 protected:
  Connection connection() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }
  bool one_host() const {
    return size() == 1 || connection() == Connection::threads || connection() == Connection::shm;
  }

  static CommunicatorOptions options(const std::string& algorithm = "") {
    return {.init_timeout = std::chrono::seconds(60), .timeout = std::chrono::seconds(60), .algorithm = algorithm};
  }
  // None, one, around the number of ranks, odd ones, and enough for several segments.
  std::vector<std::size_t> counts() const {
    const auto n = static_cast<std::size_t>(size());
    return {0, 1, n - 1, n, n + 1, 17, 1000, 4097, kLargest};
  }
  static constexpr std::size_t kLargest = 100003;
};

// Runs all calls on all ranks, in this order, and checks each. Returns a hash of every output, by
// rank and call.
std::vector<std::vector<std::uint64_t>> run_all(const std::vector<std::shared_ptr<Communicator>>& groups,
                                                const std::vector<Call>& calls, Values& values, bool exact = true);

// For INSTANTIATE_TEST_SUITE_P.
std::string test_name(const ::testing::TestParamInfo<Conformance::ParamType>& info);

}  // namespace lockstep::conformance
