#include "simulation/observer.h"

#include <algorithm>
#include <utility>

#include "membership/roster.h"

namespace lockstep::simulation {

std::vector<membership::Generation> accepted_generations(Simulation& simulation, const std::string& roster) {
  std::vector<membership::Generation> generations;
  for (int host = 0; host < simulation.hosts(); ++host) {
    for (const auto& [path, inode] : simulation.host(host).files) {
      if (!path.starts_with(roster) || path.find(".new.") != std::string::npos) continue;
      auto read = membership::parse_roster(inode->data);
      if (read.ok()) generations.push_back(std::move(read->generation));
    }
  }
  return generations;
}

std::vector<membership::Generation> accepted_after(Simulation& simulation, const std::string& roster,
                                                   const membership::Generation& generation) {
  auto generations = accepted_generations(simulation, roster);
  std::erase_if(generations, [&](const auto& one) { return one.number <= generation.number; });
  return generations;
}

}  // namespace lockstep::simulation
