#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "doctor/local/libraries.h"
#include "doctor/local/limits.h"
#include "doctor/local/processors.h"
#include "doctor/local/secret_check.h"

namespace lockstep::doctor {
namespace {

using ::testing::HasSubstr;

// A machine whose files the test writes.
class Machine {
 public:
  Machine() : root_(::testing::TempDir() + "lockstep-doctor-XXXXXX") {
    if (::mkdtemp(root_.data()) == nullptr) std::abort();
  }
  ~Machine() { std::filesystem::remove_all(root_); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  System system(const std::string& omp_num_threads = "") const {
    return {.root = root_, .environment = [omp_num_threads](const char* name) -> std::optional<std::string> {
              if (std::string_view(name) != "OMP_NUM_THREADS" || omp_num_threads.empty()) return std::nullopt;
              return omp_num_threads;
            }};
  }

 private:
  std::string root_;
};

Finding find(const std::vector<Finding>& findings, const std::string& check) {
  for (const Finding& finding : findings) {
    if (finding.check == check) return finding;
  }
  ADD_FAILURE() << "no row " << check;
  return {};
}

Limits plenty() {
  return {.open_files_soft = 65536,
          .open_files_hard = 65536,
          .locked_bytes = RLIM_INFINITY,
          .shared_folder_bytes = std::uint64_t{8} << 30};
}

TEST(Limits, AreGreenIfThereIsPlenty) {
  const Machine machine;
  machine.write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  const auto findings = judge_limits(plenty(), machine.system(), 64);
  EXPECT_EQ(worst(findings), Level::green);
  EXPECT_EQ(find(findings, "huge pages").value, "transparent huge pages: madvise");
}

TEST(Limits, OpenFilesAreJudgedByTheNumberOfRanks) {
  const Machine machine;
  Limits limits = plenty();
  limits.open_files_soft = 256;
  EXPECT_EQ(find(judge_limits(limits, machine.system(), 4), "open files").level, Level::yellow);
  const Finding many = find(judge_limits(limits, machine.system(), 1000), "open files");
  EXPECT_EQ(many.level, Level::red);
  EXPECT_THAT(many.advice, HasSubstr("ulimit -n"));
}

TEST(Limits, ALackOfSharedOrLockedMemoryIsNamedWithWhoNeedsIt) {
  const Machine machine;
  Limits limits = plenty();
  limits.memfd_error = "memfd_create failed";
  limits.shared_folder_bytes = std::uint64_t{64} << 20;
  limits.locked_bytes = std::uint64_t{64} << 10;
  auto findings = judge_limits(limits, machine.system(), 2);
  EXPECT_EQ(find(findings, "shared memory").level, Level::red);
  EXPECT_EQ(find(findings, "/dev/shm").level, Level::yellow);
  EXPECT_EQ(find(findings, "locked memory").level, Level::green) << "no adapter needs it";
  machine.write("/sys/class/infiniband/mlx5_0", "");
  findings = judge_limits(limits, machine.system(), 2);
  EXPECT_EQ(find(findings, "locked memory").level, Level::yellow);
}

TEST(Limits, HugePagesThatAreOffAreYellow) {
  const Machine machine;
  machine.write("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  EXPECT_EQ(find(judge_limits(plenty(), machine.system(), 2), "huge pages").level, Level::yellow);
}

TEST(Processors, TheQuotaOfVersion2IsTheSmallestOfAllFoldersAbove) {
  const Machine machine;
  machine.write("/proc/self/cgroup", "0::/pod/container\n");
  machine.write("/sys/fs/cgroup/pod/cpu.max", "150000 100000\n");
  machine.write("/sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  EXPECT_DOUBLE_EQ(processor_quota(machine.system()), 1.5);
  const Finding quota = find(judge_processors(machine.system(), 8, 2), "control group");
  EXPECT_EQ(quota.level, Level::yellow);
  EXPECT_THAT(quota.value, HasSubstr("1.5 of 8 cores"));
}

TEST(Processors, TheQuotaOfVersion1IsRead) {
  const Machine machine;
  machine.write("/proc/self/cgroup", "5:memory:/a\n4:cpu,cpuacct:/docker/1f\n");
  machine.write("/sys/fs/cgroup/cpu/docker/1f/cpu.cfs_quota_us", "400000\n");
  machine.write("/sys/fs/cgroup/cpu/docker/1f/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(processor_quota(machine.system()), 4);
  machine.write("/sys/fs/cgroup/cpu/docker/1f/cpu.cfs_quota_us", "-1\n");
  EXPECT_DOUBLE_EQ(processor_quota(machine.system()), 0);
}

TEST(Processors, MoreRanksThanCoresAndFewerThanNodesAreYellow) {
  const Machine machine;
  EXPECT_EQ(find(judge_processors(machine.system(), 2, 4), "cores").level, Level::yellow);
  EXPECT_EQ(find(judge_processors(machine.system(), 4, 4), "cores").level, Level::green);
  machine.write("/sys/devices/system/node/node0/cpulist", "0-3");
  machine.write("/sys/devices/system/node/node1/cpulist", "4-7");
  machine.write("/sys/devices/system/node/possible", "0-1");
  EXPECT_EQ(find(judge_processors(machine.system(), 8, 1), "NUMA nodes").level, Level::yellow);
  EXPECT_EQ(find(judge_processors(machine.system(), 8, 2), "NUMA nodes").value, "2");
}

TEST(Processors, ThreadsPerRankAreComparedWithTheCores) {
  const Machine machine;
  EXPECT_EQ(find(judge_processors(machine.system(), 8, 2), "threads per rank").level, Level::green);
  EXPECT_EQ(find(judge_processors(machine.system("4"), 8, 2), "threads per rank").level, Level::green);
  EXPECT_EQ(find(judge_processors(machine.system("8"), 8, 2), "threads per rank").level, Level::yellow);
  EXPECT_EQ(find(judge_processors(machine.system("1"), 8, 2), "threads per rank").level, Level::yellow);
  EXPECT_EQ(find(judge_processors(machine.system("1"), 2, 4), "threads per rank").level, Level::green);
  EXPECT_EQ(find(judge_processors(machine.system("zero"), 8, 2), "threads per rank").level, Level::red);
}

TEST(Libraries, TheReferenceBlasIsToldFromOpenBlas) {
  EXPECT_EQ(judge_blas({.path = "/usr/lib/x86_64-linux-gnu/blas/libblas.so.3.11.0", .gigaflops = 1.9}).level,
            Level::yellow);
  EXPECT_EQ(judge_blas({.path = "/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3"}).level, Level::green);
  EXPECT_EQ(judge_blas({}).level, Level::green);
  EXPECT_EQ(judge_blas({.broken = true}).level, Level::yellow);
}

TEST(Libraries, AChildThatCrashesOrHangsIsNoAnswer) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  EXPECT_EQ(ask_in_child([] { return std::string("answer"); }, deadline), "answer");
  EXPECT_EQ(ask_in_child(
                []() -> std::string {
                  ::raise(SIGKILL);
                  return "never";
                },
                deadline),
            std::nullopt);
  EXPECT_EQ(ask_in_child(
                []() -> std::string {
                  while (true) ::raise(SIGSTOP);
                },
                Deadline::after(std::chrono::milliseconds(50))),
            std::nullopt);
}

TEST(SecretCheck, AMissingOrWeakSecretIsNamedButNeverPrinted) {
  EXPECT_EQ(judge_secret(Secret(), false).level, Level::green);
  EXPECT_EQ(judge_secret(Secret(), true).level, Level::red);
  EXPECT_EQ(judge_secret(Status(StatusCode::invalid_argument, "the file is empty"), false).level, Level::red);
  const Finding weak = judge_secret(Secret("aaaaaaaaaaaaaaaaaaaaaaaa"), true);
  EXPECT_EQ(weak.level, Level::yellow);
  EXPECT_THAT(weak.value, ::testing::Not(HasSubstr("aaa")));
  EXPECT_EQ(judge_secret(Secret("1f8a6cd5e09b73424d0c9be27a6f5138"), true).level, Level::green);
}

}  // namespace
}  // namespace lockstep::doctor
