// The files of the private cluster, and the scripts that start its hosts. Pure.
#pragma once

#include <string>

namespace lockstep::testing {

struct SlurmOptions;

// On the hosts of the cluster, in their tmpfs.
inline constexpr const char* kSlurmFolder = "/run/slurm";
inline constexpr const char* kJobFolder = "/run/jobs";

std::string slurm_host_name(int host);  // control, node0, node1, ...

// slurm.conf and /etc/hosts for a controller on host 0 of a HostSet and nodes on the hosts after it.
std::string slurm_configuration(const SlurmOptions& options);
std::string slurm_hosts_file(int nodes);

// Shell scripts. The controller's takes the content of both files as arguments; a node's takes its name, and runs in
// the controller's mount namespace.
extern const char* const kControllerScript;
extern const char* const kNodeScript;

}  // namespace lockstep::testing
