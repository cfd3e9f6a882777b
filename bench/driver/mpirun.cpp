#include "bench/driver/mpirun.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "bench/driver/process.h"

namespace lockstep::bench {
namespace {

int ranks_per_host(const MpiJob& job) { return job.ranks / static_cast<int>(job.network->addresses().size()); }

// mpirun calls it like ssh: AGENT HOST COMMAND... The command runs in the host's network namespace, with a host name of
// its own: Open MPI takes hosts with equal names for one host.
std::string write_agent(const MpiJob& job) {
  std::string script = "#!/bin/sh\nhost=$1\nshift\ncase $host in\n";
  const std::vector<std::string>& addresses = job.network->addresses();
  for (std::size_t host = 0; host < addresses.size(); ++host) {
    script += fmt::format("{}) exec {} unshare --uts sh -c \"hostname bench-host{}; $*\" ;;\n", addresses[host],
                          fmt::join(job.network->command_prefix(static_cast<int>(host)), " "), host);
  }
  script += "esac\necho \"no host has the address $host\" >&2\nexit 1\n";
  const std::string path = fmt::format("{}/{}.agent", job.folder, job.mpi);
  std::ofstream file(path);
  file << script;
  file.close();
  if (!file || ::chmod(path.c_str(), 0700) != 0)
    throw BenchError(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  return path;
}

// "10.77.0.1:2,10.77.0.2:2"
std::string host_list(const MpiJob& job) {
  std::vector<std::string> hosts;
  for (const std::string& address : job.network->addresses())
    hosts.push_back(fmt::format("{}:{}", address, ranks_per_host(job)));
  return fmt::format("{}", fmt::join(hosts, ","));
}

// If ranks share cores, Open MPI is configured to yield.
std::vector<std::string> openmpi_command(const MpiJob& job) {
  std::vector<std::string> command = {"mpirun.openmpi", "-np", std::to_string(job.ranks), "--bind-to", "none"};
  const auto add = [&](std::initializer_list<std::string> more) { command.insert(command.end(), more); };
  if (::geteuid() == 0) add({"--allow-run-as-root"});
  if (job.share_cores) add({"--oversubscribe", "--mca", "mpi_yield_when_idle", "1"});
  if (job.network == nullptr) return command;
  const std::string& network = VirtualNetwork::kAddresses;
  add({"--host", host_list(job), "--mca", "plm_rsh_agent", write_agent(job), "--mca", "plm_rsh_no_tree_spawn", "1"});
  add({"--mca", "oob_tcp_if_include", network, "--mca", "btl_tcp_if_include", network, "--mca", "pml", "ob1"});
  // vader: shared memory, between the ranks of one host.
  add({"--mca", "btl", ranks_per_host(job) > 1 ? "tcp,self,vader" : "tcp,self"});
  return command;
}

std::vector<std::string> mpich_command(const MpiJob& job) {
  std::vector<std::string> command = {"mpirun.mpich", "-bind-to", "none", "-np", std::to_string(job.ranks)};
  const auto add = [&](std::initializer_list<std::string> more) { command.insert(command.end(), more); };
  if (job.network == nullptr) {
    add({"-launcher", "fork"});
  } else {
    add({"-launcher", "rsh", "-launcher-exec", write_agent(job), "-iface", VirtualNetwork::kDevice});
    add({"-hosts", host_list(job)});
  }
  return command;
}

}  // namespace

bool is_mpi(const std::string& engine) { return engine == "openmpi" || engine == "mpich"; }

std::string why_no_mpirun(const std::string& mpi) {
  if (!find_program("mpirun." + mpi).empty()) return "";
  return fmt::format("{0} is missing: there is no mpirun.{0} in PATH (Debian: apt-get install lib{0}-dev)", mpi);
}

std::vector<std::string> mpirun_command(const MpiJob& job) {
  // In the first host's namespace, because the other hosts connect to mpirun.
  std::vector<std::string> command =
      job.network != nullptr ? job.network->command_prefix(0) : std::vector<std::string>();
  const std::vector<std::string> mpirun = job.mpi == "openmpi" ? openmpi_command(job) : mpich_command(job);
  command.insert(command.end(), mpirun.begin(), mpirun.end());
  return command;
}

std::vector<std::string> mpirun_environment(const MpiJob& job) {
  if (job.network == nullptr) return {};
  // Open MPI 5 and later count no slots on hosts that are named by address. Earlier versions ignore the variable.
  if (job.mpi == "openmpi") return {"PRTE_MCA_rmaps_default_mapping_policy=:OVERSUBSCRIBE"};
  // Debian's MPICH communicates through UCX, which by default would take the namespaces for one host with shared
  // memory.
  return {"UCX_TLS=tcp,self", fmt::format("UCX_NET_DEVICES={}", VirtualNetwork::kDevice)};
}

}  // namespace lockstep::bench
