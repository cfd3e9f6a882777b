#include "slurm/slurm_configuration.h"

#include <fmt/format.h>

#include "slurm/slurm_cluster.h"

namespace lockstep::testing {

std::string slurm_host_name(int host) { return host == 0 ? "control" : fmt::format("node{}", host - 1); }

std::string slurm_configuration(const SlurmOptions& options) {
  // No cgroups, no accounting, no binding, because this machine may lack them. config_overrides: the nodes have as many
  // cores as this file specifies. ReturnToService=0: a node that was set down stays down.
  std::string text = fmt::format(
      "ClusterName=test\n"
      "SlurmctldHost={0}({1})\n"
      "SlurmUser=root\n"
      "AuthType=auth/munge\n"
      "CredType=cred/munge\n"
      "MpiDefault=none\n"
      "ProctrackType=proctrack/linuxproc\n"
      "TaskPlugin=task/none\n"
      "JobAcctGatherType=jobacct_gather/none\n"
      "AccountingStorageType=accounting_storage/none\n"
      "SelectType=select/cons_tres\n"
      "SelectTypeParameters=CR_CPU\n"
      "SlurmdParameters=config_overrides\n"
      "PropagateResourceLimits=NONE\n"
      "MailProg=/bin/true\n"
      "ReturnToService=0\n"
      "StateSaveLocation={2}/state\n"
      "SlurmdSpoolDir={2}/%n\n"
      "SlurmctldPidFile={2}/slurmctld.pid\n"
      "SlurmdPidFile={2}/%n.pid\n"
      "SlurmctldLogFile={2}/control.log\n"
      "SlurmdLogFile={2}/%n.log\n"
      "SlurmdTimeout={3}\n"
      "KillWait=5\n"
      "MessageTimeout=5\n"
      "SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=10000\n"
      "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n",
      slurm_host_name(0), HostSet::address(0), kSlurmFolder, options.node_timeout);
  for (int host = 1; host <= options.nodes; ++host) {
    text += fmt::format("NodeName={} NodeAddr={} CPUs=4 RealMemory=256 State=UNKNOWN\n", slurm_host_name(host),
                        HostSet::address(host));
  }
  return text;
}

std::string slurm_hosts_file(int nodes) {
  std::string text = "127.0.0.1 localhost\n";
  for (int host = 0; host <= nodes; ++host) {
    text += fmt::format("{} {}\n", HostSet::address(host), slurm_host_name(host));
  }
  return text;
}

// munged becomes a daemon once it is ready. Slurm 22.05 cannot be configured without cgroups, but the plugin for v1
// starts on every kernel and does nothing here. The shell is the first process of the host: it waits, and reaps
// orphans.
const char* const kControllerScript = R"(
mount -t tmpfs -o mode=0755 tmpfs /run
mkdir -p /run/munge /run/slurm/state /run/jobs /run/tmp
printf %s "$1" > /run/slurm/slurm.conf
case $(slurmd -V) in *" 22."*) plugin=cgroup/v1 ;; *) plugin=disabled ;; esac
echo CgroupPlugin=$plugin > /run/slurm/cgroup.conf
printf %s "$2" > /run/hosts
mount --bind /run/hosts /etc/hosts
head -c 1024 /dev/urandom > /run/munge/key
chmod 0400 /run/munge/key
hostname control
exec unshare --pid --fork --kill-child=KILL --mount-proc sh -euc '
munged --key-file=/run/munge/key --pid-file=/run/munge/pid --log-file=/run/munge/log --seed-file=/run/munge/seed
slurmctld -D &
wait'
)";

const char* const kNodeScript = R"(
hostname "$1"
mkdir -p "/run/slurm/$1"
slurmd -D &
wait
)";

}  // namespace lockstep::testing
