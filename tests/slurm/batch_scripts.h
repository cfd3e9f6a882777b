// Jobs of the batch scripts in deploy/slurm, small enough for a test machine.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <vector>

#include "slurm/slurm_cluster.h"

namespace lockstep::testing {

inline constexpr double kJobSeconds = 90;

inline std::string example(const std::string& name) { return std::string(EXAMPLES_FOLDER) + "/" + name; }

inline Environment job_environment() {
  return {{"PATH", fmt::format("{}:/usr/sbin:/usr/bin:/sbin:/bin",
                               std::filesystem::path(LOCKSTEP_COMMAND).parent_path().string())},
          {"RANKS_PER_NODE", "2"},
          {"OMP_NUM_THREADS", "1"}};
}

// srun.sbatch: 2 nodes x 2 tasks.
inline SlurmJob srun_job(const std::vector<std::string>& command) {
  return {.options = {"--nodes=2", "--ntasks-per-node=2", "--cpus-per-task=1"},
          .script = std::string(SCRIPTS_FOLDER) + "/srun.sbatch",
          .arguments = command,
          .environment = job_environment()};
}

// train.sbatch: 2 nodes with 2 ranks each.
inline SlurmJob train_job(const std::vector<std::string>& command) {
  return {.options = {"--nodes=2", "--cpus-per-task=2"},
          .script = std::string(SCRIPTS_FOLDER) + "/train.sbatch",
          .arguments = command,
          .environment = job_environment()};
}

}  // namespace lockstep::testing
