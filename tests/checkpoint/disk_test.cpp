// A disk that is full, read-only, or not ours. The file systems are made in a process with mounts of its own, so that
// they are gone with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>

#include "checkpoint/snapshot_directory.h"
#include "checkpoint/testing/test_folder.h"
#include "support/process_set.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::testing::in_seconds;
using lockstep::testing::ProcessSet;
using lockstep::testing::start_ranks;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TestFolder;
using testing::write_small;

constexpr int kSkipped = 77;
constexpr uid_t kNobody = 65534;

std::string folder_of_test() { return std::getenv("LOCKSTEP_TEST_FOLDER"); }

// For a role that cannot do what the test needs: prints what is missing, and errno. The test skips with this output.
int skip(const char* missing) {
  const int error = errno;
  std::cout << missing << ": " << std::strerror(error) << '\n';
  return kSkipped;
}

// A tmpfs over the test's folder, visible to this process only. Returns 0, or the exit code of skip().
int mount_small_disk() {
  if (::unshare(CLONE_NEWNS) != 0) return skip("a mount namespace needs CAP_SYS_ADMIN (root)");
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return skip("private mounts need a root directory that is a mount point, which that of a plain chroot is not");
  }
  if (::mount("none", folder_of_test().c_str(), "tmpfs", 0, "size=400k") != 0) {
    return skip("mounting a tmpfs needs CAP_SYS_ADMIN (root)");
  }
  return 0;
}

// Prints the error of a write that must fail, and whether the snapshot from before is as it was.
int report(const Result<std::string>& written) {
  if (written.ok()) {
    std::cout << "the write should have failed\n";
    return 1;
  }
  std::cout << "code " << to_string(written.status().code()) << '\n' << written.status().message() << '\n';
  for (const std::string& name : TestFolder::names_in(folder_of_test())) std::cout << "there: " << name << '\n';
  const auto newest = read_newest_snapshot(folder_of_test());
  const bool loads = newest.ok() && newest->snapshot && newest->snapshot->manifest.step == 1;
  std::cout << (loads && newest->skipped_snapshots.empty() ? "the old one loads\n" : "the old one is lost\n");
  return 0;
}

void run(const std::string& role, const std::vector<std::string>& words) {
  const TestFolder folder;
  ProcessSet process = start_ranks(1, role, {.environment = {{"LOCKSTEP_TEST_FOLDER", folder.path()}}});
  ASSERT_TRUE(process.wait_all(in_seconds(60))) << process.report();
  if (process.exit_status(0)->code == kSkipped) GTEST_SKIP() << process.output(0);
  ASSERT_TRUE(process.all_succeeded()) << process.report();
  for (const std::string& word : words) EXPECT_THAT(process.output(0), HasSubstr(word));
  EXPECT_THAT(process.output(0), ::testing::Not(HasSubstr("there: .tmp-")));
  EXPECT_THAT(process.output(0), HasSubstr("the old one loads"));
  EXPECT_THAT(process.output(0), ::testing::Not(HasSubstr("is lost")));
}

LOCKSTEP_PROCESS_ROLE(full_disk) {
  if (const int code = mount_small_disk(); code != 0) return code;
  if (!write_small(folder_of_test(), 1).ok()) return 1;
  // At any size from "almost fits" to "far too large".
  for (const std::size_t kilobytes : {200, 300, 390, 800, 5000}) {
    const auto written = write_small(folder_of_test(), 2, {.keep_last = 1}, std::string(1000 * kilobytes, 'x'));
    if (report(written) != 0) return 1;
  }
  // Once there is space, writing works again.
  return write_small(folder_of_test(), 3).ok() ? 0 : 1;
}
TEST(SnapshotDisk, AFullDiskIsReportedAndKeepsTheOldSnapshot) {
  run("full_disk", {"code resource_exhausted", "the snapshot of step 2 (10.0 MB) was not written", "is full (0.",
                    "MB are free)", "older ones are untouched"});
}

LOCKSTEP_PROCESS_ROLE(read_only_disk) {
  if (const int code = mount_small_disk(); code != 0) return code;
  if (!write_small(folder_of_test(), 1).ok()) return 1;
  if (::mount("none", folder_of_test().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) {
    return skip("remounting a tmpfs as read-only needs CAP_SYS_ADMIN (root)");
  }
  return report(write_small(folder_of_test(), 2));
}
TEST(SnapshotDisk, AReadOnlyFileSystemIsReported) {
  run("read_only_disk", {"code unavailable", "the file system is read-only"});
}

LOCKSTEP_PROCESS_ROLE(other_user) {
  if (::getuid() == kNobody) {
    errno = EPERM;
    return skip("the folder already belongs to the user that this test changes to");
  }
  if (::setresuid(kNobody, kNobody, kNobody) != 0) return skip("becoming another user needs CAP_SETUID (root)");
  if (::access(folder_of_test().c_str(), R_OK | X_OK) != 0) {
    return skip("another user cannot read the folder for temporary files (TMPDIR)");
  }
  return report(write_small(folder_of_test(), 2));
}
TEST(SnapshotDisk, AMissingPermissionIsReported) {
  const TestFolder folder;
  ASSERT_TRUE(write_small(folder.path(), 1).ok());
  ProcessSet process = start_ranks(1, "other_user", {.environment = {{"LOCKSTEP_TEST_FOLDER", folder.path()}}});
  ASSERT_TRUE(process.wait_all(in_seconds(60))) << process.report();
  if (process.exit_status(0)->code == kSkipped) GTEST_SKIP() << process.output(0);
  ASSERT_TRUE(process.all_succeeded()) << process.report();
  EXPECT_THAT(process.output(0), AllOf(HasSubstr("code unavailable"), HasSubstr("user 65534 has no permission"),
                                       HasSubstr("the old one loads")));
}
LOCKSTEP_PROCESS_ROLE(small_file_limit) {
  if (!write_small(folder_of_test(), 1).ok()) return 1;
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{10'000, 10'000};
  if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
  return report(write_small(folder_of_test(), 2, {}, std::string(50'000, 'x')));
}
TEST(SnapshotDisk, ALimitOnFileSizesIsReported) { run("small_file_limit", {"code resource_exhausted", "ulimit -f"}); }

}  // namespace
}  // namespace lockstep::checkpoint
