#include "launch/report/generation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "launch/report/failure.h"

namespace lockstep::launch {
namespace {

// With more, a line would not be readable.
constexpr std::size_t kMaxListed = 16;

}  // namespace

std::string describe_generation(const membership::Generation& generation,
                                const std::map<int, ProcessIdentity>& workers) {
  std::vector<std::string> here;
  std::vector<int> ranks_here;
  std::map<std::string, std::vector<int>> elsewhere;  // ranks by host
  for (std::size_t i = 0; i < generation.members.size(); ++i) {
    const membership::Member& member = generation.members[i];
    const int rank = static_cast<int>(i);
    const ProcessIdentity process{.pid = member.pid, .started = member.started};
    bool found = false;
    for (const auto& [local_rank, one] : workers) {
      if (!(one == process)) continue;
      here.push_back(fmt::format("{} = worker {}", rank, local_rank));
      ranks_here.push_back(rank);
      found = true;
    }
    if (!found) elsewhere[member.host].push_back(rank);
  }
  std::vector<std::string> parts;
  if (here.size() > kMaxListed) here = {fmt::format("{} on this node", rank_list(ranks_here))};
  if (!here.empty()) parts.push_back(fmt::format("{}", fmt::join(here, ", ")));
  for (const auto& [host, ranks] : elsewhere) parts.push_back(fmt::format("{} on {}", rank_list(ranks), host));
  const std::size_t count = generation.members.size();
  return fmt::format("generation {}: {} rank{}: {}", generation.number, count, count == 1 ? "" : "s",
                     fmt::join(parts, "; "));
}

}  // namespace lockstep::launch
