// A writer of an older generation that is stopped (SIGSTOP) while it saves, and continues after a newer generation of
// its job has saved: what it has never becomes the newest snapshot, and it removes nothing of the newer generation's.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <random>
#include <thread>

#include "base/unique_fd.h"
#include "checkpoint/snapshot_directory.h"
#include "checkpoint/testing/test_folder.h"
#include "support/process_set.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::testing::in_seconds;
using lockstep::testing::print_mark;
using lockstep::testing::ProcessSet;
using lockstep::testing::start_ranks;
using ::testing::AllOf;
using testing::bytes_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TestFolder;

constexpr const char* kJob = "5f0e";

Result<std::string> write(const std::string& folder, std::int64_t generation, std::int64_t step,
                          std::span<const std::byte> content, int keep_last) {
  const std::vector<OutputFile> files = {{"a.bin", {content}}};
  return write_snapshot(folder, {.step = step, .job = kJob, .generation = generation}, files, {.keep_last = keep_last});
}

// One page of the content, which cannot be read at first: reading it stops the process, and makes it readable.
void* trap_page = nullptr;
void stop_at_trap(int) {
  ::raise(SIGSTOP);
  ::mprotect(trap_page, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)), PROT_READ);
}

LOCKSTEP_PROCESS_ROLE(writer_that_stops_while_it_writes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t bytes = 4 * page;
  auto* const memory =
      static_cast<std::byte*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  trap_page = memory + 2 * page;
  ::mprotect(trap_page, page, PROT_NONE);
  std::signal(SIGSEGV, stop_at_trap);
  const auto written = write(std::getenv("LOCKSTEP_TEST_FOLDER"), 1, 100, {memory, bytes}, 1);
  print_mark(written.ok() ? "written" : written.status().to_string());
  return written.ok() ? 0 : 3;
}

bool is_stopped(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_end = text.rfind(')');
  return name_end != std::string::npos && name_end + 2 < text.size() && text[name_end + 2] == 'T';
}

bool wait_until_stopped(pid_t pid, Deadline deadline) {
  while (!deadline.expired()) {
    if (is_stopped(pid)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

TEST(SnapshotStop, AWriterOfAnOlderGenerationThatContinuesIsRefused) {
  const TestFolder folder;
  ProcessSet process =
      start_ranks(1, "writer_that_stops_while_it_writes", {.environment = {{"LOCKSTEP_TEST_FOLDER", folder.path()}}});
  ASSERT_TRUE(wait_until_stopped(process.pid(0), in_seconds(30))) << process.report();
  ASSERT_EQ(folder.names().size(), 1U) << "it is not in the middle of a save";

  const std::string text = "newer";
  for (std::int64_t step = 101; step <= 102; ++step) {
    const auto newer = write(folder.path(), 2, step, bytes_of(text), 2);
    ASSERT_TRUE(newer.ok()) << newer.status().to_string();
  }
  process.kill(0, SIGCONT);
  ASSERT_TRUE(process.wait_all(in_seconds(30))) << process.report();
  EXPECT_EQ(process.exit_status(0)->code, 3) << process.report();
  EXPECT_THAT(process.output(0),
              AllOf(HasSubstr("the snapshot of step 100"), HasSubstr("older ones are untouched"),
                    HasSubstr("has taken over the lock"), HasSubstr("the job continues without this process")));
  EXPECT_THAT(folder.names(), ElementsAre("snapshot-000001-step-101", "snapshot-000002-step-102"));
  EXPECT_EQ(read_newest_snapshot(folder.path()).value().snapshot->manifest.step, 102);
}

TEST(SnapshotStop, ALockOfAProcessThatWasStoppedBeforeItSignedIsTakenOver) {
  const TestFolder folder;
  const UniqueFd lock(::open((folder.path() + "/.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  const std::string text = "newer";
  const auto newer = write(folder.path(), 2, 1, bytes_of(text), 2);
  EXPECT_TRUE(newer.ok()) << newer.status().to_string();
}

LOCKSTEP_PROCESS_ROLE(writer_of_generation_1) {
  const std::string text(200'000, 'x');
  for (std::int64_t step = 1;; ++step) {
    const auto written = write(std::getenv("LOCKSTEP_TEST_FOLDER"), 1, step, bytes_of(text), 2);
    print_mark(written.ok() ? "written " + std::to_string(step) : written.status().to_string());
    if (!written.ok()) return 3;
  }
}

TEST(SnapshotStop, AtRandomMomentsTheNewerGenerationStaysTheNewest) {
  const auto seed = static_cast<unsigned>(::getpid());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 8; ++round) {
    const TestFolder folder;
    ProcessSet process =
        start_ranks(1, "writer_of_generation_1", {.environment = {{"LOCKSTEP_TEST_FOLDER", folder.path()}}});
    ASSERT_TRUE(process.wait_for_line(0, "written 2", in_seconds(60))) << process.report();
    // Not for synchronisation: the moment of the stop is the point of the test.
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    process.kill(0, SIGSTOP);
    ASSERT_TRUE(wait_until_stopped(process.pid(0), in_seconds(30)));
    const std::string text = "newer";
    const auto newer = write(folder.path(), 2, 1'000'000, bytes_of(text), 2);
    ASSERT_TRUE(newer.ok()) << newer.status().to_string();
    process.kill(0, SIGCONT);
    ASSERT_TRUE(process.wait_all(in_seconds(30))) << process.report();
    EXPECT_EQ(process.exit_status(0)->code, 3) << process.report();
    const auto newest = read_newest_snapshot(folder.path());
    ASSERT_TRUE(newest.ok()) << newest.status().to_string();
    EXPECT_EQ(newest->snapshot->manifest.generation, 2) << process.report();
    EXPECT_TRUE(newest->skipped_snapshots.empty());
    for (const std::string& name : folder.names()) EXPECT_FALSE(name.starts_with(".tmp-")) << name;
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
