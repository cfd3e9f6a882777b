#include "conformance/conformance.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

namespace lockstep::conformance {

std::vector<std::vector<std::uint64_t>> run_all(const std::vector<std::shared_ptr<Communicator>>& groups,
                                                const std::vector<Call>& calls, Values& values, bool exact) {
  std::size_t largest = 0;
  for (const auto& call : calls) largest = std::max(largest, largest_buffer(call, values.ranks()));
  std::vector<std::vector<std::uint64_t>> hashes(groups.size());
  on_all_ranks(groups, [&](Communicator& group) {
    TestBuffers buffers(group, largest);
    auto& mine = hashes[static_cast<std::size_t>(group.rank())];
    for (const auto& call : calls) {
      const auto output = run_and_check(group, call, values, buffers, exact);
      mine.push_back(XXH3_64bits(output.data(), output.size()));
      if (::testing::Test::HasFailure()) return;  // one wrong call is enough to read
    }
    group.barrier();
  });
  return hashes;
}

std::string test_name(const ::testing::TestParamInfo<Conformance::ParamType>& info) {
  return fmt::format("{}_{}", to_string(std::get<0>(info.param)), std::get<1>(info.param));
}

}  // namespace lockstep::conformance
