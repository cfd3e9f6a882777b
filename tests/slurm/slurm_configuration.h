// The files of the private cluster, and the scripts that start its hosts. Pure.
#pragma once

#include <string>

namespace lockstep::testing {

struct SlurmOptions;

// In the hosts of the cluster: a tmpfs of their own.
inline constexpr const char* kSlurmFolder = "/run/slurm";
inline constexpr const char* kJobFolder = "/run/jobs";

std::string slurm_host_name(int host);  // control, node0, node1, ...

// slurm.conf and /etc/hosts for a controller at host 0 of a HostSet and nodes at those after it.
std::string slurm_configuration(const SlurmOptions& options);
std::string slurm_hosts_file(int nodes);

// Shell scripts: the controller's takes both files as arguments; a node's takes its name, and runs among the
// controller's mounts.
extern const char* const kControllerScript;
extern const char* const kNodeScript;

}  // namespace lockstep::testing
