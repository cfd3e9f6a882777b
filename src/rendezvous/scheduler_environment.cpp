#include "rendezvous/scheduler_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "lockstep/rendezvous/launched.h"
#include "rendezvous/node_list.h"
#include "rendezvous/whole_number.h"

namespace lockstep {
namespace {

constexpr std::uint16_t kFirstPort = 10000;
constexpr std::uint32_t kPorts = 20000;
constexpr std::uint16_t kDefaultPort = 29500;  // as PyTorch's
// Slurm numbers the steps of srun from 0; the batch script, an interactive shell and the like have ids above.
constexpr std::uint64_t kFirstSpecialStep = 0xFFFFFFF0;

Status wrong(std::string message) { return Status(StatusCode::invalid_argument, std::move(message)); }

std::optional<std::uint64_t> to_number(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Alternative names of one variable; the first that is set counts.
using VariableNames = std::vector<const char*>;
struct Variable {
  const char* name = nullptr;
  std::string text;
};
std::optional<Variable> first_set(const Environment& environment, const VariableNames& names) {
  for (const char* name : names) {
    if (auto text = environment(name)) return Variable{name, *std::move(text)};
  }
  return std::nullopt;
}

// A scheduler's variables for the numbers of a rank; each may have several names.
struct Names {
  const char* scheduler;
  VariableNames rank;
  VariableNames world_size;
  VariableNames local_rank;
  VariableNames local_world_size;
};

Status read_number(const Environment& environment, const VariableNames& names, int minimum, std::optional<int>* value) {
  const auto variable = first_set(environment, names);
  if (!variable) return {};
  const auto number = parse_whole_number(variable->name, variable->text, minimum, kMaxWorldSize);
  if (!number.ok()) return number.status();
  *value = *number;
  return {};
}

Result<SchedulerPlacement> read_numbers(const Environment& environment, const Names& names) {
  std::optional<int> rank;
  std::optional<int> world_size;
  SchedulerPlacement placement{.scheduler = names.scheduler, .master_host = {}};
  LOCKSTEP_RETURN_IF_ERROR(read_number(environment, names.rank, 0, &rank));
  LOCKSTEP_RETURN_IF_ERROR(read_number(environment, names.world_size, 1, &world_size));
  LOCKSTEP_RETURN_IF_ERROR(read_number(environment, names.local_rank, 0, &placement.local_rank));
  LOCKSTEP_RETURN_IF_ERROR(read_number(environment, names.local_world_size, 1, &placement.local_world_size));
  if (!rank || !world_size) {
    return wrong(fmt::format(
        "this process seems to be a rank of a job of {}, but {} is not set. Start the program with {}'s own command, "
        "or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
        names.scheduler, rank ? names.world_size.front() : names.rank.front(), names.scheduler));
  }
  placement.rank = *rank;
  placement.world_size = *world_size;
  if (*rank >= *world_size) {
    return wrong(fmt::format("{} is {}, but {} is {}; expected a rank from 0 to {}", names.rank.front(), *rank,
                             names.world_size.front(), *world_size, *world_size - 1));
  }
  const int local_limit = placement.local_world_size.value_or(*world_size);
  if (local_limit > *world_size) {
    return wrong(fmt::format("{} is {}, but {} is {}; expected at most that many ranks on one host",
                             names.local_world_size.front(), local_limit, names.world_size.front(), *world_size));
  }
  if (placement.local_rank && *placement.local_rank >= local_limit) {
    return wrong(fmt::format("{} is {}, but there are {} ranks on this host; expected a local rank below it",
                             names.local_rank.front(), *placement.local_rank, local_limit));
  }
  return placement;
}

// Sets the host from Slurm's list of hosts, if there is one.
Status set_host_of_slurm(const Environment& environment, SchedulerPlacement* placement) {
  const auto list = first_set(environment, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (!list) return {};
  const auto nodes = expand_node_list(list->text);
  if (!nodes.ok()) return nodes.status().with_context(list->name);
  placement->master_host = nodes->front();
  return {};
}

std::optional<std::uint64_t> slurm_step(const Environment& environment) {
  const auto text = first_set(environment, {"SLURM_STEP_ID", "SLURM_STEPID"});
  if (!text) return std::nullopt;
  const auto step = to_number(text->text);
  if (!step || *step >= kFirstSpecialStep) return std::nullopt;
  return step;
}

Result<SchedulerPlacement> place_by_slurm(const Environment& environment, std::uint64_t step) {
  auto placement = read_numbers(environment, {.scheduler = "Slurm",
                                              .rank = {"SLURM_PROCID"},
                                              .world_size = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"},
                                              .local_rank = {"SLURM_LOCALID"},
                                              .local_world_size = {}});
  if (!placement.ok()) return placement;
  std::optional<int> hosts;
  LOCKSTEP_RETURN_IF_ERROR(
      read_number(environment, {"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"}, 1, &hosts));
  if (hosts && *hosts > placement->world_size) {
    return wrong(fmt::format("Slurm reports that {} ranks are on {} hosts; expected at least one on each",
                             placement->world_size, *hosts));
  }
  if (hosts == 1 || placement->world_size == 1) {
    placement->master_host = "127.0.0.1";
  } else {
    LOCKSTEP_RETURN_IF_ERROR(set_host_of_slurm(environment, &*placement));
  }
  const auto job = first_set(environment, {"SLURM_JOB_ID", "SLURM_JOBID"});
  placement->master_port = port_of_job(job ? job->text : "", step);
  return placement;
}

// Open MPI and PMI provide no host names, only the number of ranks on this host.
Result<SchedulerPlacement> place_by_mpi(const Environment& environment, const Names& names,
                                        const VariableNames& job_names) {
  auto placement = read_numbers(environment, names);
  if (!placement.ok()) return placement;
  if (placement->world_size == 1 || placement->local_world_size == placement->world_size) {
    placement->master_host = "127.0.0.1";
  } else {  // within a job of Slurm rank 0 is on its first host, unless the user mapped ranks by hand
    LOCKSTEP_RETURN_IF_ERROR(set_host_of_slurm(environment, &*placement));
  }
  const auto job = first_set(environment, job_names);
  placement->master_port = port_of_job(job ? job->text : "", 0);
  return placement;
}

}  // namespace

std::uint16_t port_of_job(const std::string& job, std::uint64_t step) {
  if (job.empty()) return kDefaultPort;
  std::uint64_t number = 0;
  if (const auto id = to_number(job)) {
    number = 16 * (*id % kPorts) + step % kPorts;
  } else {
    std::uint32_t hash = 2166136261U;
    for (const unsigned char c : job) hash = (hash ^ c) * 16777619U;
    number = hash;
  }
  return static_cast<std::uint16_t>(kFirstPort + number % kPorts);
}

Result<std::optional<SchedulerPlacement>> find_scheduler_placement(const Environment& environment) {
  const auto found = [](Result<SchedulerPlacement> placement) -> Result<std::optional<SchedulerPlacement>> {
    if (!placement.ok()) return placement.status();
    return std::optional(*std::move(placement));
  };
  if (first_set(environment, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"})) {
    return found(place_by_mpi(environment,
                              {.scheduler = "Open MPI",
                               .rank = {"OMPI_COMM_WORLD_RANK"},
                               .world_size = {"OMPI_COMM_WORLD_SIZE"},
                               .local_rank = {"OMPI_COMM_WORLD_LOCAL_RANK"},
                               .local_world_size = {"OMPI_COMM_WORLD_LOCAL_SIZE"}},
                              {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}));
  }
  const auto step = slurm_step(environment);
  if (first_set(environment, {"PMI_RANK", "PMI_SIZE"})) {
    auto by_pmi = place_by_mpi(environment,
                               {.scheduler = "PMI",
                                .rank = {"PMI_RANK"},
                                .world_size = {"PMI_SIZE"},
                                .local_rank = {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"},
                                .local_world_size = {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}},
                               {"PMI_JOBID"});
    if (!by_pmi.ok() || !step) return found(std::move(by_pmi));
    // srun itself implements PMI: then both agree, and Slurm provides more.
    auto by_slurm = place_by_slurm(environment, *step);
    const bool same = by_slurm.ok() && by_slurm->rank == by_pmi->rank && by_slurm->world_size == by_pmi->world_size;
    return found(same ? std::move(by_slurm) : std::move(by_pmi));
  }
  if (!step) return std::optional<SchedulerPlacement>();
  return found(place_by_slurm(environment, *step));
}

bool is_launched(const Environment& environment) {
  if (first_set(environment, {"RANK", "WORLD_SIZE"})) return true;
  const auto placement = find_scheduler_placement(environment);
  // Contradictory variables come from a launcher too: forming the group reports the error.
  return !placement.ok() || placement->has_value();
}

bool is_launched() { return is_launched(process_environment()); }

std::string slurm_hint(const Environment& environment) {
  const auto job = first_set(environment, {"SLURM_JOB_ID", "SLURM_JOBID"});
  if (!job || slurm_step(environment)) return "";
  return fmt::format(
      " This is inside job {} of Slurm, but not a task of it: start the program with `srun`, which defines the "
      "ranks.",
      job->text);
}

}  // namespace lockstep
