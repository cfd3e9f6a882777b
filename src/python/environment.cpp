#include "python/environment.h"

#include "rendezvous/environment.h"
#include "rendezvous/scheduler_environment.h"

namespace lockstep::python {

std::map<std::string, std::string> scheduler_environment() {
  const Environment environment = process_environment();
  if (environment("RANK") || environment("WORLD_SIZE")) return {};
  const auto placed = value_or_throw(find_scheduler_placement(environment));
  if (!placed) return {};
  std::map<std::string, std::string> variables{{"RANK", std::to_string(placed->rank)},
                                               {"WORLD_SIZE", std::to_string(placed->world_size)}};
  if (placed->local_rank) variables["LOCAL_RANK"] = std::to_string(*placed->local_rank);
  if (placed->local_world_size) variables["LOCAL_WORLD_SIZE"] = std::to_string(*placed->local_world_size);
  if (!environment("MASTER_ADDR") && !placed->master_host.empty()) variables["MASTER_ADDR"] = placed->master_host;
  if (!environment("MASTER_PORT")) variables["MASTER_PORT"] = std::to_string(placed->master_port);
  return variables;
}

}  // namespace lockstep::python
