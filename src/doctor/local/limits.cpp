#include "doctor/local/limits.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>

#include "base/shared_memory.h"

namespace lockstep::doctor {
namespace {

// The usual soft limit of a login. A job with more ranks needs more.
constexpr std::uint64_t kUsualFiles = 1024;
// Of a rank: its store, logs, memory and libraries, and what each peer may need.
constexpr std::uint64_t kFilesOfRank = 64;
constexpr std::uint64_t kFilesOfPeer = 4;
// What PyTorch's data loaders and NCCL want of /dev/shm; Docker's default is 64 MiB.
constexpr std::uint64_t kSharedFolder = std::uint64_t{512} << 20;

std::string size_text(std::uint64_t bytes) {
  if (bytes == RLIM_INFINITY) return "unlimited";
  if (bytes >= std::uint64_t{1} << 30) return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

std::string count_text(std::uint64_t count) { return count == RLIM_INFINITY ? "unlimited" : fmt::to_string(count); }

Finding judge_files(const Limits& limits, int ranks) {
  const std::uint64_t needed = kFilesOfRank + kFilesOfPeer * static_cast<std::uint64_t>(ranks);
  const std::string value =
      fmt::format("{} (hard limit {})", count_text(limits.open_files_soft), count_text(limits.open_files_hard));
  if (limits.open_files_soft < needed) {
    return red("open files", value,
               fmt::format("a rank of {} may need {}: run `ulimit -n {}` before the job, or raise `nofile` in "
                           "/etc/security/limits.conf (LimitNOFILE= of a systemd unit, --ulimit nofile= of docker run)",
                           ranks, needed, std::max<std::uint64_t>(needed, 65536)));
  }
  if (limits.open_files_soft < kUsualFiles) {
    return yellow("open files", value, "less than the usual 1024: data loaders may fail; run `ulimit -n 65536`");
  }
  return green("open files", value);
}

Finding judge_huge_pages(const System& system) {
  const auto mode = system.first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  if (!mode) return green("huge pages", "this kernel has no transparent huge pages");
  const std::size_t begin = mode->find('[');
  const std::size_t end = mode->find(']');
  const std::string chosen =
      begin == std::string::npos || end == std::string::npos ? *mode : mode->substr(begin + 1, end - begin - 1);
  if (chosen == "never") {
    return yellow("huge pages", "transparent huge pages: never",
                  "large tensors cost more page faults: as root, `echo madvise > "
                  "/sys/kernel/mm/transparent_hugepage/enabled`");
  }
  return green("huge pages", fmt::format("transparent huge pages: {}", chosen));
}

}  // namespace

Limits read_limits() {
  Limits limits;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limits.open_files_soft = limit.rlim_cur;
  limits.open_files_hard = limit.rlim_max;
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  limits.locked_bytes = limit.rlim_cur;
  struct statvfs folder {};
  if (::statvfs("/dev/shm", &folder) == 0) limits.shared_folder_bytes = folder.f_bavail * folder.f_frsize;
  const auto memory = SharedMemory::create(std::size_t{1} << 20, "lockstep-doctor");
  if (!memory.ok()) limits.memfd_error = memory.status().message();
  return limits;
}

std::vector<Finding> judge_limits(const Limits& limits, const System& system, int ranks) {
  std::vector<Finding> findings = {judge_files(limits, ranks)};
  if (limits.memfd_error.empty()) {
    findings.push_back(green("shared memory", "a memfd can be made"));
  } else {
    findings.push_back(red("shared memory", limits.memfd_error,
                           "ranks of a host share memory through memfd_create(2): allow it in the container's seccomp "
                           "profile, and raise the memory limit of the control group"));
  }
  const std::string free = limits.shared_folder_bytes == 0 ? "none" : size_text(limits.shared_folder_bytes) + " free";
  findings.push_back(limits.shared_folder_bytes < kSharedFolder
                         ? yellow("/dev/shm", free,
                                  "Lockstep does not use it, but PyTorch's data loaders, MPI and NCCL do: `docker run "
                                  "--shm-size=8g`, or `mount -o remount,size=8g /dev/shm`")
                         : green("/dev/shm", free));
  const std::string locked = size_text(limits.locked_bytes);
  const bool has_rdma = !system.names("/sys/class/infiniband").empty();
  findings.push_back(
      has_rdma && limits.locked_bytes != RLIM_INFINITY
          ? yellow("locked memory", locked,
                   "NCCL and MPI register memory with the InfiniBand adapter: run `ulimit -l unlimited`, or set "
                   "`memlock` in /etc/security/limits.conf")
          : green("locked memory", fmt::format("{}{}", locked, has_rdma ? "" : "; no InfiniBand adapter needs more")));
  findings.push_back(judge_huge_pages(system));
  return findings;
}

}  // namespace lockstep::doctor
