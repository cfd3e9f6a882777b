#include "launch/process/child_environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <map>

#include "record/record_memory.h"

namespace lockstep::launch {
namespace {

std::map<std::string, std::string> variables_of(const Round& round, const RankPlace& place) {
  const std::string rank = std::to_string(round.first_rank + place.local_rank);
  const std::string world_size = std::to_string(round.world_size);
  std::map<std::string, std::string> variables = {
      {"RANK", rank},
      {"LOCAL_RANK", std::to_string(place.local_rank)},
      {"WORLD_SIZE", world_size},
      {"LOCAL_WORLD_SIZE", std::to_string(place.nproc)},
      {"GROUP_RANK", std::to_string(round.node_rank)},
      {"NODE_RANK", std::to_string(round.node_rank)},
      {"GROUP_WORLD_SIZE", std::to_string(round.nodes.size())},
      {"ROLE_RANK", rank},
      {"ROLE_NAME", place.role},
      {"ROLE_WORLD_SIZE", world_size},
      {"MASTER_ADDR", round.master_addr},
      {"MASTER_PORT", std::to_string(round.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(place.restarts)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(place.max_restarts)},
      {"TORCHELASTIC_RUN_ID", place.run_id},
      {"TORCHELASTIC_ERROR_FILE", place.torch_error_file},
      {"LOCKSTEP_ERROR_FILE", place.error_file},
  };
  if (!place.secret.empty()) variables["LOCKSTEP_SECRET"] = place.secret;
  if (!place.record.empty()) variables[record::kMemoryVariable] = place.record;
  if (place.store_is_served) variables["LOCKSTEP_STORE_IS_SERVED"] = "1";
  if (place.elastic) {
    variables["LOCKSTEP_ELASTIC"] = "1";
    variables["LOCKSTEP_MIN_RANKS"] = std::to_string(place.elastic->min_ranks);
    variables["LOCKSTEP_MAX_RANKS"] = std::to_string(place.elastic->max_ranks);
    variables["LOCKSTEP_ROSTER"] = place.elastic->roster_file;
    if (!place.elastic->attester.empty()) variables["LOCKSTEP_ATTESTER"] = place.elastic->attester;
    if (!place.elastic->witness.empty()) variables["LOCKSTEP_WITNESS"] = place.elastic->witness;
    if (place.elastic->newcomer) variables["LOCKSTEP_NEWCOMER"] = "1";
  }
  return variables;
}

// Variables of an outer launcher that would mislead a rank if this launcher does not set them.
constexpr const char* kOurs[] = {"LOCKSTEP_STORE_IS_SERVED", "LOCKSTEP_STORE_FD",  "LOCKSTEP_ELASTIC",
                                 "LOCKSTEP_MIN_RANKS",       "LOCKSTEP_MAX_RANKS", "LOCKSTEP_ROSTER",
                                 "LOCKSTEP_NEWCOMER",        "LOCKSTEP_ATTESTER",  "TORCHELASTIC_USE_AGENT_STORE",
                                 record::kMemoryVariable};

}  // namespace

std::vector<std::string> child_environment(const std::vector<std::string>& inherited, const Round& round,
                                           const RankPlace& place) {
  std::map<std::string, std::string> all;
  for (const std::string& entry : inherited) {
    const std::size_t equals = entry.find('=');
    if (equals != std::string::npos) all[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  for (const char* name : kOurs) all.erase(name);
  for (auto& [name, value] : variables_of(round, place)) all[name] = value;
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"})
    all.try_emplace(name, std::to_string(place.threads));
  std::vector<std::string> result;
  result.reserve(all.size());
  for (const auto& [name, value] : all) result.push_back(fmt::format("{}={}", name, value));
  return result;
}

std::vector<std::string> current_environment() {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) result.emplace_back(*entry);
  return result;
}

}  // namespace lockstep::launch
